// Streams of sessions: what async trainers send, which open a session whenever one ends. The same for the same seed.
import { drawsFor, toolSeconds, trajectory } from './agent-plans.ts';
import type { Draws } from './draws.ts';
import { type Clients, type FleetEvent, type Session, type Stream, type Trace, TraceBuilder } from './workload.ts';

export interface Shape {
  readonly name: string;
  /** Sessions that are open at a time. */
  readonly slots: number;
  /** Sessions begin when this many slots are free, all of them at once. */
  readonly atOnce?: number;
  /** The slots of a group are free when its last session has ended, as where a trainer's task is a group. */
  readonly holdsGroups?: boolean;
  readonly meanTurns?: number;
  /** The last session of each group has three times the turns. */
  readonly hasStraggler?: boolean;
  readonly delay?: (draws: Draws) => number;
  /** With new weights all engines stop, and continue without cached prefixes. */
  readonly isFlushed?: boolean;
  /** Length of the run; a third of it is the warm-up. */
  readonly seconds?: number;
}

const groupSize = 8;
const weightsSeconds = 120;

/** The sessions of a stream in the order in which they begin: group after group. They are made when first asked for. */
class Sessions {
  readonly #shape: Shape;
  readonly #draws: Draws;
  readonly #build = new TraceBuilder();
  readonly #system = this.#build.segment('sys', 1500);
  readonly #made: Session[] = [];

  constructor(shape: Shape, seed: number) {
    this.#shape = shape;
    this.#draws = drawsFor(shape.name, seed);
  }

  at(index: number): Session {
    while (this.#made.length <= index) this.#addGroup(this.#made.length / groupSize);
    return this.#made[index]!;
  }

  #addGroup(group: number): void {
    const { slots, atOnce = 1, meanTurns = 11, hasStraggler = false, delay = toolSeconds } = this.#shape;
    const draws = this.#draws;
    const taskTokens = Math.min(20_000, Math.trunc(draws.logNormal(1800, 0.5)));
    const turnsOfGroup = draws.logNormal(meanTurns, 0.5);
    const prefix = [this.#system, this.#build.segment(`task${group}`, taskTokens)];
    const promptTokens = this.#system.tokens + taskTokens;
    for (let sample = 0; sample < groupSize; sample++) {
      const isStraggler = hasStraggler && sample === groupSize - 1;
      const plans = trajectory(draws, promptTokens, isStraggler ? 3 * turnsOfGroup : turnsOfGroup, delay);
      // The first session of each slot is cut to a part of its turns: otherwise the slots would stay in step for long.
      const isCut = atOnce <= groupSize && this.#made.length < slots;
      const count = isCut ? 1 + Math.trunc(draws.uniform(0, plans.length)) : plans.length;
      const start = { id: `s${group}.${sample}`, group: `s${group}`, prefix, startSeconds: 0 };
      this.#made.push(this.#build.session(start, plans.slice(0, count)));
    }
  }
}

/** The trainer's side of one run. */
class Slots implements Clients {
  readonly #shape: Shape;
  readonly #sessions: Sessions;
  /** Sessions that have ended, of the groups whose slots are not free yet. */
  readonly #ended = new Map<string, number>();
  #free: number;
  #next = 0;

  constructor(shape: Shape, sessions: Sessions) {
    this.#shape = shape;
    this.#sessions = sessions;
    this.#free = shape.slots;
  }

  ended({ group }: Session): Session[] {
    if (this.#shape.holdsGroups === true) {
      const ended = (this.#ended.get(group) ?? 0) + 1;
      this.#ended.set(group, ended);
      if (ended < groupSize) return [];
      this.#ended.delete(group);
      this.#free += groupSize;
    } else this.#free += 1;
    return this.begun();
  }

  /** The sessions that begin now. */
  begun(): Session[] {
    const { atOnce = 1 } = this.#shape;
    const begun: Session[] = [];
    while (this.#free >= atOnce) {
      for (let i = 0; i < atOnce; i++) begun.push(this.#sessions.at(this.#next++));
      this.#free -= atOnce;
    }
    return begun;
  }
}

/** All engines stop; the first continues after 3 s, the others one per second after it. */
function swaps(seconds: number): FleetEvent[] {
  const events: FleetEvent[] = [];
  for (let at = weightsSeconds; at < seconds; at += weightsSeconds) {
    events.push({ atSeconds: at, kind: 'pause' });
    for (let engine = 0; engine < 64; engine++) events.push({ atSeconds: at + 3 + engine, kind: 'resume', engine });
  }
  return events;
}

/** @returns the stream of a seed */
export function streamOf(shape: Shape): (seed: number) => Trace {
  return (seed) => {
    const { slots, seconds = 1800 } = shape;
    const sessions = new Sessions(shape, seed);
    const stream: Stream = {
      seconds,
      warmUpSeconds: seconds / 3,
      weightsSeconds,
      slots,
      groupSize,
      clients() {
        const clients = new Slots(shape, sessions);
        clients.begun();
        return clients;
      },
    };
    const first = new Slots(shape, sessions).begun();
    const events = shape.isFlushed === true ? swaps(seconds) : [];
    return { name: shape.name, sessions: first, events, stream };
  };
}

/** Half of the tool calls end within 1.4 s, one of 35 takes more than a minute. */
const heavyTailed = (draws: Draws): number => Math.max(0.2, Math.min(600, draws.logNormal(10, 2)));

const shapes: readonly Shape[] = [
  { name: 'stream-1.5x', slots: 496 },
  { name: 'stream-2x', slots: 656 },
  // Its sessions last longer, whatever the policy.
  { name: 'stream-4x', slots: 1312, seconds: 3600 },
  { name: 'stream-tools', slots: 656, delay: heavyTailed },
  { name: 'stream-straggler', slots: 1280, atOnce: groupSize, holdsGroups: true, meanTurns: 7, hasStraggler: true },
  { name: 'stream-waves', slots: 960, atOnce: 800 },
  { name: 'stream-swap', slots: 656, isFlushed: true },
];

/** Streams by name, made from a seed. */
export const streams: Readonly<Record<string, (seed: number) => Trace>> = Object.fromEntries(
  shapes.map((shape) => [shape.name, streamOf(shape)]),
);
