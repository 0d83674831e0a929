import type { TestContext } from 'node:test';
import { chunk } from './message.ts';
import { type Engine, type EngineOptions, type EngineRequest, answer, startEngine } from './engine.ts';

/** What came to an engine of a pair. */
export interface Seen {
  readonly request: EngineRequest;
  /** The body as it came. */
  readonly text: string;
  readonly rooms: readonly string[];
  readonly hosts: readonly string[];
  readonly ports: readonly (number | null)[];
  readonly isList: boolean;
}

/** What an engine says, in place of a good answer; null: that. */
export type Instead = (seen: Seen) => 'nothing' | 'reset' | { status: number; body: string } | null;

/** An engine that is one half of pairs, and whatever it got. */
export class Half {
  readonly seen: Seen[] = [];
  /** Requests without good fields: there must be none. */
  readonly wrong: string[] = [];
  instead: Instead = () => null;
  /** The process has died of a request without the fields, as SGLang's decode engines do (0.5.23). */
  hasDied = false;
  engine!: Engine;
}

/**
 * Prefill and decode engines that meet in rooms: both wait until the other side of a room has come; bodies with wrong fields are
 * refused, and kill a decode engine.
 */
export class PairWorld {
  readonly prefill: Half[] = [];
  readonly decode: Half[] = [];
  readonly #t: TestContext;
  readonly #waiting = new Map<string, () => void>();
  /** What prefill and decode engines answer to a good request. */
  says: (half: 'prefill' | 'decode', seen: Seen, index: number) => string = (half, _seen, index) =>
    JSON.stringify({ text: `${half}${index}`, meta_info: {} });

  constructor(t: TestContext) {
    this.#t = t;
  }

  async add(role: 'prefill' | 'decode', options: EngineOptions = {}): Promise<Half> {
    const half = new Half();
    const index = this[role].length;
    half.engine = await startEngine(this.#t, {
      onRequest: (request) => void this.#serve(role, half, index, request),
      ...options,
    });
    this[role].push(half);
    return half;
  }

  get urls(): { prefill: string[]; decode: string[] } {
    const urls = (halves: readonly Half[]) => halves.map(({ engine }) => engine.url);
    return { prefill: urls(this.prefill), decode: urls(this.decode) };
  }

  async #serve(role: 'prefill' | 'decode', half: Half, index: number, request: EngineRequest): Promise<void> {
    if (request.method === 'GET' || request.target.endsWith('tokenize')) {
      await request.whole;
      request.answer(JSON.stringify(`${role}${index}`));
      return;
    }
    await request.whole;
    const text = Buffer.concat(request.wireBody.payload).toString();
    const seen = readSeen(request, text);
    if (seen === null) {
      half.wrong.push(text);
      if (role === 'prefill') {
        request.connection.write(answer(400, '{"error":"bootstrap fields"}'));
        return;
      }
      half.hasDied = true;
      half.engine.kill();
      return;
    }
    half.seen.push(seen);
    const instead = half.instead(seen);
    if (instead === 'nothing') return;
    if (instead === 'reset') return request.connection.reset();
    if (instead !== null) {
      const fields = ['content-type: application/json', `x-engine: ${role}${index}`];
      request.connection.write(answer(instead.status, instead.body, fields));
      return;
    }
    const isStream = /"stream":\s*true/.test(text);
    // As uvicorn does: the head goes out before the work is done.
    if (isStream) request.beginStream();
    await Promise.all(seen.rooms.map((room) => this.#meet(`${room} ${role}`, `${room} ${other(role)}`)));
    const said = this.says(role, seen, index);
    if (!isStream) request.answerCompressed(said);
    else request.connection.write(`${chunk(`data: ${said}\n\n`)}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  }

  /** Resolves when the other one is there too. */
  #meet(mine: string, theirs: string): Promise<void> {
    const waiting = this.#waiting.get(theirs);
    if (waiting !== undefined) {
      this.#waiting.delete(theirs);
      waiting();
      return Promise.resolve();
    }
    return new Promise((resolve) => this.#waiting.set(mine, resolve));
  }
}

const other = (role: 'prefill' | 'decode') => (role === 'prefill' ? 'decode' : 'prefill');

/** Reads the fields, rooms digit by digit; null where they are not good. */
function readSeen(request: EngineRequest, text: string): Seen | null {
  let body: Record<string, unknown>;
  try {
    // All numbers of many digits as text: a double would round them.
    body = JSON.parse(text.replaceAll(/([[:,]\s*)(\d{10,})(?=\s*[,\]}])/g, '$1"$2"')) as Record<string, unknown>;
  } catch {
    return null;
  }
  const { bootstrap_host: host, bootstrap_port: port, bootstrap_room: room } = body;
  const isList = Array.isArray(room);
  if (Array.isArray(host) !== isList || Array.isArray(port) !== isList) return null;
  const [hosts, ports, rooms] = (isList ? [host, port, room] : [[host], [port], [room]]) as unknown[][];
  if (hosts!.length !== rooms!.length || ports!.length !== rooms!.length) return null;
  const isGood =
    hosts!.every((each) => typeof each === 'string') &&
    ports!.every((each) => each === null || Number.isInteger(each)) &&
    rooms!.every((each) => /^\d{1,19}$/.test(String(each)) && BigInt(String(each)) < 2n ** 63n);
  if (!isGood) return null;
  return {
    request,
    text,
    isList,
    hosts: (hosts ?? []).map(String),
    ports: ports as (number | null)[],
    rooms: rooms!.map(String),
  };
}
