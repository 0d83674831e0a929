// The clients of a batch or stream: every session sends its turns one after the other.
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { hash32 } from '../../router/src/kit/hash.ts';
import { Job } from '../policies/job.ts';
import { type StreamMetrics, StreamMeter } from '../policies/stream-meter.ts';
import type { Session, Turn } from '../policies/workload.ts';
import { lastCount, post } from './chat-call.ts';
import { Conversation } from './conversation.ts';
import type { Scene } from './scene.ts';
import type { System } from './system.ts';

/** Times in simulated seconds. */
export interface Played {
  /** From the start to the last response; of a stream, its length. */
  readonly makespan: number;
  readonly turns: number;
  /** Turns that were sent again because the first attempt failed. */
  readonly retries: number;
  /** Share of the prompt tokens that engines had in their caches. */
  readonly hitShare: number;
  /** The longest time until an engine had a request; half a real second more or less. */
  readonly longestHold: number;
  /** null for a batch. */
  readonly stream: StreamMetrics | null;
}

export interface Play {
  readonly system: System;
  readonly scene: Scene;
  /** Prefix of session ids. */
  readonly batch: string;
  readonly onTurn: (turns: number) => void;
}

/** Resolves when the last session has ended, or the time of the stream; rejects at any error. */
export async function play({ system, scene, batch, onTurn }: Play): Promise<Played> {
  const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  const { trace, timeScale } = scene;
  const { stream } = trace;
  const over = new AbortController();
  const clients = stream?.clients();
  const meter = stream === undefined ? null : new StreamMeter(stream);
  const startedMs = performance.now();
  const secondsAt = (ms: number): number => (ms - startedMs) / 1000 / timeScale;
  const wait = (seconds: number): Promise<void> =>
    sleep(Math.max(0, seconds) * timeScale * 1000, undefined, { signal: over.signal });
  /** Turns without an answer. */
  const waiting = new Set<Job>();
  const totals = { promptTokens: 0, hitTokens: 0 };
  let turns = 0;
  let retries = 0;
  let longestHold = 0;
  let lastMs = startedMs;

  /** @returns whether to send it again */
  function onFailed(): boolean {
    if (!over.signal.aborted) retries += 1;
    return !over.signal.aborted;
  }

  async function ask(session: Session, index: number, messages: string): Promise<string> {
    const turn = session.turns[index]!;
    const id = batch + session.id;
    const sampling = `"max_tokens":${turn.outputTokens},"ignore_eos":true,"seed":${hash32(`${session.id} ${index}`) >>> 1}`;
    const body = `{"model":"sim",${system.fields(id)}${sampling},"stream":true,"stream_options":{"include_usage":true},"messages":${messages}}`;
    const job = new Job(turns, session, index, secondsAt(performance.now()));
    const headers = system.headers(id, job.isLastTurn);
    if (index === 0) meter?.began(job);
    waiting.add(job);
    const call = { agent, url: `${system.url}/v1/chat/completions`, headers, body };
    const answer = await post(call, onFailed);
    lastMs = performance.now();
    waiting.delete(job);
    // An engine says in which second it has read the request.
    const readAt = secondsAt((lastCount(answer.text, 'created') + 0.5) * 1000 - performance.timeOrigin);
    longestHold = Math.max(longestHold, readAt - job.arrivedAt);
    job.firstTokenAt = secondsAt(answer.firstTokenMs);
    check(turn, answer.text);
    turns += 1;
    totals.promptTokens += turn.promptTokens;
    totals.hitTokens += lastCount(answer.text, 'cached_tokens');
    meter?.answered(job, secondsAt(lastMs));
    onTurn(turns);
    return Array.from(answer.text.matchAll(/"content":"([^"]*)"/g), (match) => match[1]!).join('');
  }

  async function live(session: Session, startSeconds: number): Promise<void> {
    await wait(startSeconds - secondsAt(performance.now()));
    const conversation = new Conversation();
    for (const [index, turn] of session.turns.entries()) {
      conversation.answered(await ask(session, index, conversation.ask(turn)));
      if (index < session.turns.length - 1) await wait(turn.delaySeconds);
    }
    const release = system.release(batch + session.id);
    if (release !== null) {
      await post({ agent, url: system.url + release.path, headers: {}, body: release.body }, onFailed);
    }
    const next = clients?.ended(session) ?? [];
    await Promise.all(next.map((each) => live(each, 0)));
  }

  /** The time of the stream. */
  async function end(seconds: number, warmUpSeconds: number): Promise<void> {
    await wait(warmUpSeconds - secondsAt(performance.now()));
    meter!.warm([totals]);
    longestHold = 0;
    await wait(seconds - secondsAt(performance.now()));
    const nowAt = secondsAt(performance.now());
    const sentAt = new Map(Array.from(waiting, (job) => [batch + job.sessionId, job.arrivedAt]));
    const heldMs = await system.heldMs((session) => (nowAt - (sentAt.get(session) ?? nowAt)) * timeScale * 1000);
    longestHold = Math.max(longestHold, heldMs / 1000 / timeScale);
    over.abort();
    agent.destroy();
  }

  const all = trace.sessions.map((session) =>
    live(session, session.startSeconds).catch((error: unknown) => {
      if (!over.signal.aborted) throw error;
    }),
  );
  try {
    await Promise.all(stream === undefined ? all : [...all, end(stream.seconds, stream.warmUpSeconds)]);
  } finally {
    over.abort();
    agent.destroy();
  }
  return {
    makespan: stream?.seconds ?? secondsAt(lastMs),
    turns,
    retries,
    hitShare: totals.hitTokens / totals.promptTokens,
    longestHold,
    stream: meter?.result([totals]) ?? null,
  };
}

function check(turn: Turn, text: string): void {
  const prompt = lastCount(text, 'prompt_tokens');
  const answer = lastCount(text, 'completion_tokens');
  if (prompt === turn.promptTokens && answer === turn.outputTokens) return;
  throw new Error(`a turn of ${turn.promptTokens} + ${turn.outputTokens} tokens came out as ${prompt} + ${answer}`);
}
