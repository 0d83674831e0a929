import { type Random, seededRandom } from '../../../src/kit/rng.ts';
import { ClientSocket, type Plan } from './client.ts';
import type { ClientEnd, Journal } from './journal.ts';

const PATHS = ['/v1/completions', '/v1/chat/completions', '/generate'];
/**
 * Few enough that what policies remember of them stops growing early in a run. So each has one prompt: with a new one at each
 * beginning, `rollout` remembered ten more groups a second until it had all of its 10,000, for longer than a run.
 */
const SESSIONS = 512;
const sizes = seededRandom(1);
const promptSizes = Array.from({ length: SESSIONS }, () =>
  sizes() < 0.01 ? 200_000 : sizes() < 0.1 ? Math.floor(sizes() * 30_000) : Math.floor(sizes() * 2000),
);

/** Any client: of any size, patient or not, tidy or not. */
export function drawPlan(random: Random): Plan {
  const session = Math.floor(random() * SESSIONS);
  return {
    path: PATHS[Math.floor(random() * PATHS.length)]!,
    session: `s${session}`,
    size: promptSizes[session]!,
    stream: random() < 0.6,
    isChunked: random() < 0.1,
    leavesAfterMs: random() < 0.06 ? 1 + random() * 800 : 0,
    pausesMs: random() < 0.03 ? random() * 2000 : 0,
    parts: random() < 0.1 ? 2 + Math.floor(random() * 4) : 1,
    lastTurn: random() < 0.05,
  };
}

/** Connections that are kept for later: with every fresh one there would be one more. */
const MAX_IDLE = 100;

/** Clients of one router: their kept connections, and how many are waiting for an answer. */
export class Clients {
  readonly #port: number;
  readonly #journal: Journal;
  readonly #patienceMs: number;
  readonly #idle: ClientSocket[] = [];
  inFlight = 0;

  constructor(port: number, journal: Journal, patienceMs: number) {
    this.#port = port;
    this.#journal = journal;
    this.#patienceMs = patienceMs;
  }

  /** Over a kept connection where one is left, unless `isFresh`; the connection is kept again where it can be. */
  async ask(plan: Plan, isFresh: boolean, keeps: boolean): Promise<ClientEnd> {
    return (await this.#ask(plan, isFresh, keeps)).end;
  }

  /** As `ask`, and how long it took from the last byte of the request on. */
  async time(plan: Plan): Promise<{ end: ClientEnd; ms: number }> {
    return this.#ask(plan, false, true);
  }

  async #ask(plan: Plan, isFresh: boolean, keeps: boolean): Promise<{ end: ClientEnd; ms: number }> {
    let socket = isFresh ? undefined : this.#idle.pop();
    while (socket?.isUsable === false) socket = this.#idle.pop();
    socket ??= new ClientSocket(this.#port, this.#journal, this.#patienceMs);
    this.inFlight++;
    const end = await socket.ask(plan);
    this.inFlight--;
    if (keeps && socket.isUsable && this.#idle.length < MAX_IDLE) this.#idle.push(socket);
    else socket.close();
    return { end, ms: socket.lastMs };
  }

  close(): void {
    for (const socket of this.#idle.splice(0)) socket.close();
  }
}

/** `count` clients ask one thing after the other until `isOver`. */
export async function closedLoop(
  clients: Clients,
  random: Random,
  count: number,
  isOver: () => boolean,
): Promise<void> {
  const one = async (): Promise<void> => {
    while (!isOver()) await clients.ask(drawPlan(random), random() < 0.2, random() < 0.9);
  };
  await Promise.all(Array.from({ length: count }, one));
}

export interface OpenLoop {
  readonly perSecond: number;
  /** Beyond so many under way nothing is sent: this machine can't. */
  readonly maxInFlight: number;
  readonly isOver: () => boolean;
  readonly ask: () => void;
  readonly inFlight: () => number;
}

/** Requests arrive whatever became of those before them. @returns how many were sent, and how many could not be */
export async function openLoop(random: Random, loop: OpenLoop): Promise<{ sent: number; skipped: number }> {
  let sent = 0;
  let skipped = 0;
  const gapMs = 1000 / loop.perSecond;
  const nextGap = (): number => -Math.log(1 - random()) * gapMs;
  let due = performance.now() + nextGap();
  while (!loop.isOver()) {
    for (const now = performance.now(); due <= now; due += nextGap()) {
      if (loop.inFlight() >= loop.maxInFlight) skipped++;
      else {
        sent++;
        loop.ask();
      }
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(1, due - performance.now())));
  }
  return { sent, skipped };
}
