import { seededRandom } from '../kit/rng.ts';
import { EventSplitter, dataOf, joined } from '../kit/sse.ts';

/** A batch of agent trajectories as RL training sends it: groups of sessions that share a prompt, turns whose context grows. */
export interface BatchShape {
  readonly sessions: number;
  /** Sessions of one prompt. */
  readonly groupSize: number;
  /** Turns of a session on average; they vary between half and one and a half of it. */
  readonly turns: number;
  /** Words of the prompt that a group shares. */
  readonly promptWords: number;
  /** Words that the user (or a tool) adds with each turn. */
  readonly turnWords: number;
  /** Longest answer in tokens. */
  readonly maxTokens: number;
}

interface BatchOptions extends BatchShape {
  /** Of a router or engine: `http://host:port`. */
  readonly url: string;
  readonly model: string;
  readonly apiKey?: string;
  /** Batches with other seeds share no prompt: an engine's cache from one is of no use to the next. */
  readonly seed: number;
  readonly onTurn: (turn: BatchTurn) => void;
}

export interface BatchTurn {
  readonly session: string;
  /** 0 for the first. */
  readonly index: number;
  /** 1 + how often the client had to send it again. */
  readonly attempts: number;
  /** null where every attempt failed; the session ends there. */
  readonly answer: TurnAnswer | null;
  /** Why the last failed attempt failed; ''. */
  readonly error: string;
}

interface TurnAnswer {
  readonly text: string;
  /** As the router says it with --worker-header; ''. */
  readonly worker: string;
  readonly reason: string;
  readonly ttftMs: number;
  readonly ms: number;
  readonly promptTokens: number;
  /** -1 where the engine does not say. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
}

/** A turn whose stream breaks off is sent again by its client so often. */
const MAX_ATTEMPTS = 5;

interface SessionPlan {
  readonly name: string;
  readonly group: string;
  readonly seed: number;
  /** What is added with each turn. */
  readonly additions: readonly string[];
}

/** How many turns a batch has in all, and about how many tokens it costs (1.3 a word). */
export function batchCost(shape: BatchShape, seed = 1): { turns: number; promptTokens: number; outputTokens: number } {
  const perTurn = 1.3 * shape.turnWords + shape.maxTokens;
  const cost = { turns: 0, promptTokens: 0, outputTokens: 0 };
  for (const { additions } of plan(shape, seed)) {
    const { length } = additions;
    cost.turns += length;
    cost.outputTokens += length * shape.maxTokens;
    cost.promptTokens += Math.round(length * 1.3 * shape.promptWords + (perTurn * length * (length - 1)) / 2);
  }
  return cost;
}

/** Runs all sessions at once, each turn after the one before it. Resolves when the last one is over. */
export async function runAgentBatch(options: BatchOptions): Promise<void> {
  await Promise.all(plan(options, options.seed).map((session) => runSession(session, options)));
}

function plan({ sessions, groupSize, turns, promptWords, turnWords }: BatchShape, seed: number): SessionPlan[] {
  return Array.from({ length: sessions }, (_, i) => {
    const group = Math.floor(i / groupSize);
    const ofGroup = seededRandom(seed * 1_000_003 + group);
    const prompt = `Batch ${seed}, task ${group}. ${words(ofGroup, promptWords)}`;
    const random = seededRandom(seed * 1_000_003 + 500_000 + i);
    const count = Math.max(1, Math.round(turns * (0.5 + random())));
    const additions = Array.from({ length: count }, (_, turn) => (turn === 0 ? prompt : words(random, turnWords)));
    return { name: `batch-${seed}-${i}`, group: `batch-${seed}-${group}`, seed: seed * 1_000 + i, additions };
  });
}

const VOCABULARY =
  'the a of to in that it is was for on with as at by from or an be this which one had not but what all were when we there can who'.split(
    ' ',
  );
const words = (random: () => number, count: number): string =>
  Array.from({ length: count }, () => VOCABULARY[Math.floor(random() * VOCABULARY.length)]).join(' ');

async function runSession({ name, group, seed, additions }: SessionPlan, options: BatchOptions): Promise<void> {
  const messages: { role: string; content: string }[] = [];
  for (const [index, content] of additions.entries()) {
    messages.push({ role: 'user', content });
    const isLast = index === additions.length - 1;
    const headers = {
      'content-type': 'application/json',
      'x-session-id': name,
      'x-turnout-group': group,
      ...(isLast ? { 'x-turnout-session-end': '1' } : {}),
      ...(options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` }),
    };
    const body = JSON.stringify({
      model: options.model,
      messages,
      max_tokens: options.maxTokens,
      temperature: 1,
      seed,
      stream: true,
      stream_options: { include_usage: true },
    });
    const turn = await send(`${options.url}/v1/chat/completions`, headers, body);
    options.onTurn({ session: name, index, ...turn });
    if (turn.answer === null) return;
    messages.push({ role: 'assistant', content: turn.answer.text });
  }
}

async function send(url: string, headers: Readonly<Record<string, string>>, body: string) {
  let error = '';
  for (let attempts = 1; attempts <= MAX_ATTEMPTS; attempts++) {
    try {
      const startMs = performance.now();
      const response = await fetch(url, { method: 'POST', headers, body });
      return { answer: await readStream(response, startMs), attempts, error };
    } catch (reason) {
      error = (reason as Error).message;
    }
  }
  return { answer: null, attempts: MAX_ATTEMPTS, error };
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
}

/** Rejects where the answer is not a whole stream. */
async function readStream(response: Response, startMs: number): Promise<TurnAnswer> {
  if (response.status !== 200) throw new Error(`status ${response.status}: ${(await response.text()).slice(0, 200)}`);
  const splitter = new EventSplitter(joined);
  let text = '';
  let ttftMs = 0;
  let isFinished = false;
  let usage: Chunk['usage'] = null;
  for await (const part of response.body!) {
    for (const event of splitter.push(Buffer.from(part as Uint8Array))) {
      const [start, end] = dataOf(event);
      const data = event.toString('utf8', Math.max(start, 0), Math.max(end, 0)).trim();
      if (!data.startsWith('{')) continue;
      const chunk = JSON.parse(data) as Chunk;
      const [choice] = chunk.choices ?? [];
      if (ttftMs === 0 && choice?.delta?.content) ttftMs = performance.now() - startMs;
      text += choice?.delta?.content ?? '';
      isFinished ||= choice?.finish_reason != null;
      usage = chunk.usage ?? usage;
    }
  }
  if (!isFinished) throw new Error('the stream ended early');
  return {
    text,
    worker: response.headers.get('x-turnout-worker') ?? '',
    reason: response.headers.get('x-turnout-reason') ?? '',
    ttftMs,
    ms: performance.now() - startMs,
    promptTokens: usage?.prompt_tokens ?? 0,
    cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? -1,
    outputTokens: usage?.completion_tokens ?? 0,
  };
}
