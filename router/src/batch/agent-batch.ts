import { seededRandom } from '../kit/rng.ts';
import { EventSplitter, dataOf, joined } from '../kit/sse.ts';

/** A batch of agent trajectories as in RL training: groups of sessions share a prompt, turns add to the context. */
export interface BatchShape {
  readonly sessions: number;
  readonly groupSize: number;
  /** Turns of a session on average; they vary between half and one and a half times this. */
  readonly turns: number;
  /** Words of the prompt that a group shares. */
  readonly promptWords: number;
  /** Words that the user (or a tool) adds with each turn. */
  readonly turnWords: number;
  readonly maxTokens: number;
}

interface BatchOptions extends BatchShape {
  /** `http://host:port` of a router or engine. */
  readonly url: string;
  readonly model: string;
  readonly apiKey?: string;
  /** Batches with different seeds share no prompt, so none benefits from the cache of another. */
  readonly seed: number;
  readonly onTurn: (turn: BatchTurn) => void;
}

export interface BatchTurn {
  readonly session: string;
  readonly index: number;
  /** 1 + the number of times the client sent it again. */
  readonly attempts: number;
  /** null if every attempt failed, which ends the session. */
  readonly answer: TurnAnswer | null;
  /** Why the last failed attempt failed; ''. */
  readonly error: string;
}

interface TurnAnswer {
  readonly text: string;
  /** By --worker-header; ''. */
  readonly worker: string;
  readonly reason: string;
  readonly ttftMs: number;
  readonly ms: number;
  readonly promptTokens: number;
  /** null: the engine does not report it. */
  readonly cachedTokens: number | null;
  readonly outputTokens: number;
}

/** A turn with a truncated stream is sent again by its client this often. */
const MAX_ATTEMPTS = 5;

interface SessionPlan {
  readonly name: string;
  readonly group: string;
  readonly seed: number;
  readonly additions: readonly string[];
}

/** The number of turns of a batch, and its approximate tokens (1.3 per word). */
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

/** Runs all sessions in parallel, each turn after the one before. Resolves when the last one has ended. */
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

/** Rejects if the response is not a complete stream. */
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
    cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? null,
    outputTokens: usage?.completion_tokens ?? 0,
  };
}
