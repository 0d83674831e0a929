// The clients of a batch: every session sends its turns one after the other through the router.
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { hash32 } from '../../router/src/kit/hash.ts';
import type { Segment, Session, Trace, Turn } from '../policies/workload.ts';
import { timeScale } from './scene.ts';

export interface Played {
  /** Simulated seconds from the start to the last response. */
  readonly makespan: number;
  readonly turns: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** What a client has read of one response. */
interface Answer {
  /** Token ids, separated by commas. */
  readonly ids: string;
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly cachedTokens: number;
}

/** Ids have three digits, as those of the engines' words: a token is four bytes of prompt. */
const firstId = 264;
const lastId = 999;

/** The tokens of a segment, always the same for the same name. */
function textOf({ hash, tokens }: Segment): string {
  const ids: number[] = [];
  let state = hash;
  for (let i = 0; i < tokens; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    ids.push(firstId + ((state >>> 8) % (lastId - firstId + 1)));
  }
  return ids.join(',');
}

function lastCount(text: string, name: string): number {
  const at = text.lastIndexOf(`"${name}":`);
  return at < 0 ? Number.NaN : Number.parseInt(text.slice(at + name.length + 3, at + name.length + 15), 10);
}

function readAnswer(text: string): Answer {
  const ids = Array.from(text.matchAll(/"output_ids":\[([\d,]+)\]/g), (match) => match[1]!);
  return {
    ids: ids.join(','),
    promptTokens: lastCount(text, 'prompt_tokens'),
    answerTokens: lastCount(text, 'completion_tokens'),
    cachedTokens: lastCount(text, 'cached_tokens'),
  };
}

function post(agent: Agent, url: string, headers: Record<string, string>, body: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/generate`, {
      agent,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': String(body.length), ...headers },
    });
    sent.on('error', reject);
    sent.on('response', (response) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`the router answered ${response.statusCode}: ${text.slice(0, 300)}`));
      });
    });
    sent.end(body);
  });
}

/** Resolves when the last session has ended, rejects at any error. @param batch prefix of session ids */
export async function play(url: string, trace: Trace, batch: string, onTurn: (turns: number) => void): Promise<Played> {
  const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  const startedMs = performance.now();
  let turns = 0;
  let promptTokens = 0;
  let cachedTokens = 0;
  let lastMs = startedMs;

  async function ask(session: Session, index: number, prompt: string): Promise<string> {
    const turn = session.turns[index]!;
    const sampling = `{"max_new_tokens":${turn.outputTokens},"ignore_eos":true,"sampling_seed":${hash32(`${session.id} ${index}`) >>> 1}}`;
    const isLast = index === session.turns.length - 1;
    const headers = { 'x-session-id': batch + session.id, ...(isLast ? { 'x-turnout-session-end': '1' } : {}) };
    const body = `{"input_ids":[${prompt}],"sampling_params":${sampling},"stream":true}`;
    const answer = readAnswer(await post(agent, url, headers, body));
    check(turn, answer);
    turns += 1;
    promptTokens += answer.promptTokens;
    cachedTokens += answer.cachedTokens;
    lastMs = performance.now();
    onTurn(turns);
    return answer.ids;
  }

  async function live(session: Session): Promise<void> {
    await sleep(session.startSeconds * timeScale * 1000);
    const history: string[] = [];
    for (const [index, turn] of session.turns.entries()) {
      // What the client adds after the last response.
      for (const segment of turn.prompt.slice(history.length)) history.push(textOf(segment));
      history.push(await ask(session, index, history.join(',')));
      if (index < session.turns.length - 1) await sleep(turn.delaySeconds * timeScale * 1000);
    }
  }

  try {
    await Promise.all(trace.sessions.map(live));
  } finally {
    agent.destroy();
  }
  return { makespan: (lastMs - startedMs) / 1000 / timeScale, turns, promptTokens, cachedTokens };
}

function check(turn: Turn, answer: Answer): void {
  if (answer.promptTokens === turn.promptTokens && answer.answerTokens === turn.outputTokens) return;
  throw new Error(
    `a turn of ${turn.promptTokens} + ${turn.outputTokens} tokens came out as ${answer.promptTokens} + ${answer.answerTokens}`,
  );
}
