// A policy, a fleet and open sessions in one process, without sockets.
import { policies } from '../../router/src/choose/built-in-policies.ts';
import { Chooser } from '../../router/src/choose/choose.ts';
import type { Policy } from '../../router/src/choose/policy.ts';
import { RankedRequests } from '../../router/src/choose/ranked-requests.ts';
import { PolicyTable } from '../../router/src/choose/policy-table.ts';
import { SessionHomes } from '../../router/src/choose/session-homes.ts';
import { memoryStore } from '../../router/src/choose/state.ts';
import { loadConfig } from '../../router/src/config/load.ts';
import type { PolicyName } from '../../router/src/config/options/policy-names.ts';
import { PlacedRequest, type Prompt } from '../../router/src/placed-request.ts';
import { Fleet } from '../../router/src/fleet/fleet.ts';
import type { Worker } from '../../router/src/fleet/worker.ts';
import { blockCount } from '../../router/src/kit/block-hash.ts';
import { type Random, seededRandom } from '../../router/src/kit/rng.ts';

/** Bytes of the prompt that all sessions share, that a group shares, and by which a turn grows. */
const SYSTEM_BYTES = 2_048;
const GROUP_BYTES = 1_024;
const TURN_BYTES = 512;
const BYTES_PER_TOKEN = 4;
const ANSWER_TOKENS = 100;
export const USUAL_GROUP = 8;
const TURNS = 8;
/** Requests in flight at each worker: their number on average. */
const IN_FLIGHT_EACH = 4;
/** Room for all sessions: none is held. */
export const ENOUGH_KV_TOKENS = 4_000_000;

interface Session {
  readonly id: string;
  readonly group: number;
  readonly seed: number;
  turns: number;
}

const mixed = (a: number, b: number): number => Math.imul(a ^ Math.imul(b + 1, 0x9e3779b1), 0x85ebca6b) >>> 0;

/** Turns of sessions in random order. A session that ends is replaced by a new one. */
export class Scene {
  readonly #random: Random = seededRandom(1);
  readonly #fleet: Fleet;
  readonly #policy: Policy;
  readonly #table: PolicyTable;
  readonly #chooser: Chooser;
  readonly #sessions: Session[] = [];
  readonly #inFlight: PlacedRequest[] = [];
  readonly #window: number;
  readonly #groupSize: number;
  /** Held turns, and the slot of each. */
  readonly #ranked = new RankedRequests();
  readonly #slots = new Map<PlacedRequest, number>();
  #opened = 0;
  #nowMs = 0;

  /**
   * @param kvTokens of each worker
   * @param groupSize sessions with one prompt
   */
  constructor(name: PolicyName, workers: number, sessions: number, kvTokens: number, groupSize: number) {
    this.#groupSize = groupSize;
    const fleet = (this.#fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null }));
    for (let i = 0; i < workers; i++) (fleet.add(`http://engine-${i}:1`) as Worker).kvTokens = kvTokens;
    const store = memoryStore();
    this.#policy = policies[name]({
      fleet,
      random: this.#random,
      options: loadConfig({}, {}, undefined),
      nowMs: () => this.#nowMs,
      state: (map) => store.open(map),
      retryHeld: () => {},
      trace: null,
      warn: () => {},
    });
    this.#table = new PolicyTable({ name, policy: this.#policy });
    const homes = new SessionHomes(
      () => this.#nowMs,
      () => 3_600_000,
    );
    this.#chooser = new Chooser(fleet, this.#table, { homes, explains: 'sessions' });
    this.#window = IN_FLIGHT_EACH * workers;
    for (let i = 0; i < sessions; i++) this.#sessions.push(this.#newSession());
  }

  get held(): number {
    return this.#ranked.size;
  }

  /** Every session has its first turn. */
  openAll(): void {
    for (const session of this.#sessions) if (session.turns === 0) this.#decide(this.#turn(session));
  }

  /** @returns µs of CPU for each of `count` decisions, with what the policy does when the requests end */
  measure(count: number): number {
    const turns = Array.from({ length: count }, () => this.#anyTurn());
    const before = process.cpuUsage();
    for (const x of turns) this.#decide(x);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / count;
  }

  #decide(x: PlacedRequest): void {
    this.#nowMs += 1;
    const choice = this.#chooser.place(x);
    if (choice === null || !('legs' in choice)) {
      this.#slots.set(x, this.#ranked.add(x, this.#policy.heldRank!(x)));
      return;
    }
    this.#inFlight.push(x);
    if (this.#inFlight.length > this.#window) {
      // Any of them ends.
      const at = Math.floor(this.#random() * this.#inFlight.length);
      const done = this.#inFlight[at]!;
      this.#inFlight[at] = this.#inFlight.pop()!;
      this.#end(done);
    }
  }

  #end(x: PlacedRequest): void {
    const promptTokens = x.bodyBytes / BYTES_PER_TOKEN;
    x.usage = { promptTokens, cachedTokens: null, outputTokens: ANSWER_TOKENS };
    x.outcome = 'complete';
    x.status = 200;
    this.#chooser.released(x);
    this.#retryHeld();
  }

  /** As the router's hold queue. */
  #retryHeld(): void {
    while (this.held > 0) {
      const x = this.#policy.nextHeld!(this.#ranked, this.#fleet.eligible);
      if (x === null) return;
      this.#ranked.delete(this.#slots.get(x)!);
      this.#slots.delete(x);
      this.#decide(x);
      if (this.#slots.has(x)) return;
    }
  }

  #anyTurn(): PlacedRequest {
    const at = Math.floor(this.#random() * this.#sessions.length);
    let session = this.#sessions[at]!;
    if (session.turns === TURNS) session = this.#sessions[at] = this.#newSession();
    return this.#turn(session);
  }

  #newSession(): Session {
    const number = this.#opened++;
    return { id: `session-${number}`, group: Math.floor(number / this.#groupSize), seed: number, turns: 0 };
  }

  #turn(session: Session): PlacedRequest {
    const bytes = SYSTEM_BYTES + GROUP_BYTES + TURN_BYTES * session.turns;
    const x = new PlacedRequest();
    x.bodyBytes = bytes;
    x.firstTokenMs = this.#nowMs + 20;
    x.endMs = this.#nowMs + 1_000;
    x.key = { kind: 'session', value: session.id, source: 'header:x-session-id' };
    session.turns++;
    x.isLastTurn = session.turns === TURNS;
    if (!this.#table.knowsSession(x)) x.prompt = promptOf(session, bytes);
    return x;
  }
}

function promptOf({ group, seed }: Session, bytes: number): Prompt {
  const blocks = new Uint32Array(blockCount(bytes));
  const system = blockCount(SYSTEM_BYTES);
  const ofGroup = blockCount(SYSTEM_BYTES + GROUP_BYTES);
  for (let i = 0; i < blocks.length; i++) {
    blocks[i] = i < system ? mixed(i, 1) : i < ofGroup ? mixed(i, group + 2) : mixed(i, -seed - 2);
  }
  const hash = mixed(group, 7);
  return { field: 'prompt', blocks, bytes, tokens: bytes / BYTES_PER_TOKEN, hash };
}
