// A run: clients, a policy and engines on one virtual clock.
import { hash32 } from '../../router/src/kit/hash.ts';
import { seededRandom, type Random } from '../../router/src/kit/rng.ts';
import type { EngineOptions } from './engine-options.ts';
import { Engine, type EngineHost, type EngineTotals } from './engine.ts';
import { EventQueue } from './event-queue.ts';
import { Job } from './job.ts';
import { type RebalanceOptions, Rebalancer } from './rebalance.ts';
import { Latencies, summarise, type RunMetrics } from './run-metrics.ts';
import type { PolicyHost, SimPolicy, SimPolicyFactory } from './policy.ts';
import { StreamMeter } from './stream-meter.ts';
import type { Clients, FleetEvent, Request, Session, Trace } from './workload.ts';

export interface SimulationOptions {
  readonly trace: Trace;
  readonly policy: SimPolicyFactory;
  /** Engines in the fleet. */
  readonly engineCount: number;
  readonly engine: EngineOptions;
  /** The seed of the policy; the trace has its own. */
  readonly seed: number;
  readonly earlierBatch: () => Trace;
  /** Running responses are moved where that ends the batch sooner. Left out: never. */
  readonly rebalance?: RebalanceOptions;
}

type Event =
  | FleetEvent
  | { readonly kind: 'boundary'; readonly engine: Engine; readonly version: number }
  | { readonly kind: 'turn'; readonly session: Session; readonly turn: number }
  | { readonly kind: 'pump' }
  | { readonly kind: 'warm' };

export class Simulation implements EngineHost, PolicyHost {
  readonly engines: readonly Engine[];
  readonly engineCount: number;
  readonly engineOptions: EngineOptions;
  readonly random: Random;
  readonly earlierBatch: () => Trace;
  readonly #policy: SimPolicy;
  readonly #events = new EventQueue<Event>();
  readonly #latencies = new Latencies();
  readonly #rebalancer: Rebalancer | null;
  /** Where responses go that leave their engine. */
  readonly #destinations = new Map<Job, Engine>();
  #moves = 0;
  #now = 0;
  #requests = 0;
  #retries = 0;
  readonly #endsAt: number;
  readonly #clients: Clients | null;
  readonly #meter: StreamMeter | null;
  readonly #held = new Set<Job>();
  #longestHold = 0;
  #openSessions: number;
  #lastDoneAt = 0;

  constructor(options: SimulationOptions) {
    const { trace, policy, engineCount, engine, seed, earlierBatch } = options;
    this.engineCount = engineCount;
    this.engineOptions = engine;
    this.random = seededRandom(hash32(`policy ${seed}`));
    this.earlierBatch = earlierBatch;
    this.engines = Array.from({ length: engineCount }, (_, index) => new Engine(index, engine, this));
    const { rebalance } = options;
    this.#rebalancer = rebalance === undefined ? null : new Rebalancer(this.engines, rebalance);
    this.#policy = policy(this);
    const { stream } = trace;
    this.#endsAt = stream?.seconds ?? Infinity;
    this.#clients = stream?.clients() ?? null;
    this.#meter = stream === undefined ? null : new StreamMeter(stream);
    if (stream !== undefined) this.#events.push(stream.warmUpSeconds, { kind: 'warm' });
    this.#openSessions = trace.sessions.length;
    for (const session of trace.sessions) this.#events.push(session.startSeconds, { kind: 'turn', session, turn: 0 });
    for (const event of trace.events) {
      if (event.kind === 'pause' || event.engine < engineCount) this.#events.push(event.atSeconds, event);
    }
  }

  get now(): number {
    return this.#now;
  }

  /** Runs until every session has ended; a stream, for its time. */
  run(): RunMetrics {
    while (this.#openSessions > 0) {
      const at = this.#events.firstKey;
      if (at > this.#endsAt && at < Infinity) break;
      const event = this.#events.pop();
      if (event === undefined) throw new Error(`${this.#openSessions} sessions are open and nothing is left to happen`);
      this.#now = at;
      this.#handle(event);
    }
    const { totals } = this;
    for (const job of this.#held) this.#noteHold(this.#endsAt - job.arrivedAt);
    return summarise({
      totals,
      latencies: this.#latencies,
      makespan: this.#meter === null ? this.#lastDoneAt : this.#endsAt,
      longestHold: this.#longestHold,
      stream: this.#meter?.result(totals) ?? null,
      retries: this.#retries,
      moves: this.#moves,
    });
  }

  /** What each engine has done so far. */
  get totals(): readonly EngineTotals[] {
    return this.engines.map((engine) => engine.totals);
  }

  send(request: Request, engine: number): void {
    const job = request as Job;
    if (this.#held.delete(job)) this.#noteHold(this.#now - job.arrivedAt);
    job.engine = engine;
    job.sentAt = this.#now;
    this.#policy.sent(job, engine);
    this.engines[engine]!.submit(job, this.#now);
  }

  pumpAt(seconds: number): void {
    this.#events.push(seconds, { kind: 'pump' });
  }

  wakeAt(seconds: number, engine: Engine, version: number): void {
    this.#events.push(seconds, { kind: 'boundary', engine, version });
  }

  done(job: Job, now: number): void {
    const { session, turn } = job;
    this.#latencies.add(job.firstTokenAt - job.arrivedAt, now - job.arrivedAt);
    this.#lastDoneAt = now;
    this.#policy.finished(job, job.engine);
    this.#rebalancer?.ended(job);
    this.#meter?.answered(job, now);
    if (job.isLastTurn) {
      this.#openSessions -= 1;
      this.#policy.closed(session.id, session.group);
      for (const next of this.#clients?.ended(session) ?? []) this.#begin(next, now);
    } else {
      this.#events.push(now + job.plan.delaySeconds, { kind: 'turn', session, turn: turn + 1 });
    }
    this.#policy.pump();
    this.#rebalance();
  }

  #begin(session: Session, now: number): void {
    this.#openSessions += 1;
    this.#events.push(now, { kind: 'turn', session, turn: 0 });
  }

  left(job: Job, now: number): void {
    const engine = this.#destinations.get(job)!;
    this.#destinations.delete(job);
    this.#moves += 1;
    this.#policy.moved?.(job, engine.index);
    job.engine = engine.index;
    job.sentAt = now;
    engine.submit(job, now);
    this.#rebalance();
  }

  stayed(job: Job): void {
    this.#destinations.delete(job);
  }

  #rebalance(): void {
    // One at a time: what the engines have is known again when it has arrived.
    if (this.#rebalancer === null || this.#destinations.size > 0) return;
    const move = this.#rebalancer.next();
    if (move === null) return;
    this.#destinations.set(move.job, move.to);
    move.from.release(move.job, this.#now);
  }

  #handle(event: Event): void {
    switch (event.kind) {
      case 'boundary':
        if (event.engine.version === event.version) event.engine.onBoundary(this.#now);
        break;
      case 'turn':
        this.#dispatch(new Job(++this.#requests, event.session, event.turn, this.#now));
        break;
      case 'fail':
        this.#fail(event.engine);
        break;
      case 'up':
        this.engines[event.engine]!.start(this.#now);
        this.#policy.upped(event.engine);
        this.#policy.pump();
        break;
      case 'pause':
        for (const engine of this.engines) {
          engine.pause();
          this.#policy.paused(engine.index);
        }
        break;
      case 'resume':
        this.#policy.swapped(event.engine);
        this.engines[event.engine]!.resume(this.#now);
        this.#policy.pump();
        break;
      case 'pump':
        this.#policy.pump();
        break;
      case 'warm':
        this.#meter!.warm(this.totals);
        this.#longestHold = 0;
        break;
    }
  }

  #dispatch(job: Job): void {
    if (job.turn === 0 && job.retries === 0) this.#meter?.began(job);
    const engine = this.#policy.route(job);
    if (engine !== null) this.send(job, engine);
    else this.#held.add(job);
  }

  #noteHold(seconds: number): void {
    this.#longestHold = Math.max(this.#longestHold, seconds);
  }

  #fail(engine: number): void {
    const lost = this.engines[engine]!.fail(this.#now);
    this.#policy.down(engine, lost);
    for (const job of lost) {
      this.#destinations.delete(job);
      this.#retries += 1;
      job.retries += 1;
      this.#dispatch(job);
    }
  }
}
