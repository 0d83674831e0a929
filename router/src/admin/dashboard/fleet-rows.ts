import type { SessionHomes } from '../../choose/session-homes.ts';
import type { Breakers } from '../../fleet/breakers.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { StallWatch } from '../../fleet/stall-watch.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { Meters } from '../../observe/meters.ts';
import type { DeploymentList } from '../../swap/deployment-list.ts';
import type { EngineLoads } from './engine-loads.ts';
import type { SwapRow, WorkerRow, WorkerSwap } from './protocol.ts';
import type { RowTable } from './row-table.ts';

export interface WorkerSources {
  readonly fleet: Fleet;
  readonly breakers: Breakers;
  readonly stalls: StallWatch;
  readonly meters: Meters;
  readonly homes: SessionHomes;
  /** Whether the router knows the sessions of requests. */
  readonly knowsSessions: () => boolean;
  /** null: no weights are swapped. */
  readonly swaps: DeploymentList | null;
}

/** Puts a row for each worker into the table; one that is removed has a row until its last request has ended. */
export function putWorkers(sources: WorkerSources, loads: EngineLoads, table: RowTable, tick: number): void {
  const { fleet, swaps } = sources;
  const swapOf = new Map<Worker, WorkerSwap>();
  for (const deployment of swaps?.all ?? []) {
    for (const { worker, state, snapshot, target, stage, error } of swaps!.status(deployment))
      swapOf.set(worker, { state, snapshot, target, stage, error });
  }
  const workers = [...fleet.workers, ...fleet.leaving];
  const ids = new Set(workers.map(({ id }) => id));
  for (const worker of workers) {
    const row = rowOf(sources, loads, worker, swapOf.get(worker) ?? null);
    table.put(worker.id, JSON.stringify(row), tick);
  }
  for (const id of table.keys()) if (!ids.has(id)) table.drop(id, tick);
}

function rowOf(
  { fleet, breakers, stalls, meters, homes, knowsSessions }: WorkerSources,
  loads: EngineLoads,
  worker: Worker,
  swap: WorkerSwap | null,
): WorkerRow {
  const counted = meters.byWorker.get(worker.url);
  const [, , ok = 0, redirects = 0, refused = 0, failed = 0] = counted?.byStatusClass ?? [];
  const load = loads.of(worker);
  const nowMs = performance.now();
  return {
    url: worker.url,
    id: worker.id,
    role: worker.role,
    reasons: worker.reasonNames(),
    breaker: breakers.stateOf(worker),
    problem: worker.problem,
    stalled: stalls.isStalled(worker),
    engine: worker.engine,
    engine_version: worker.engineVersion,
    weight_version: worker.weightVersion,
    models: worker.models === null ? null : [...worker.models.keys()],
    added_at: Math.round(performance.timeOrigin + worker.addedMs),
    in_flight: fleet.load(worker),
    sessions: knowsSessions() ? (homes.byWorker.get(worker.url) ?? 0) : null,
    connections: worker.pool.openCount,
    engine_requests: load?.requests ?? null,
    engine_waiting: load?.waiting ?? null,
    kv_use: load?.kvUse ?? null,
    kv_tokens: worker.kvTokens,
    responses: ok + redirects + refused,
    failures: failed + (counted?.failedAttempts ?? 0) + (counted?.cut ?? 0),
    prompt_tokens: counted?.promptTokens ?? 0,
    cached_tokens: counted?.cachedTokens ?? null,
    cacheable_prompt_tokens: counted?.cacheablePromptTokens ?? 0,
    output_tokens: counted?.outputTokens ?? 0,
    first_token_secs: rounded(counted?.firstToken.recentSecs(nowMs)),
    token_gap_secs: rounded(counted?.tokenGap.recentSecs(nowMs)),
    response_secs: rounded(counted?.response.recentSecs(nowMs)),
    swap,
  };
}

/** So that a row does not change with every request. */
const rounded = (secs: number | null | undefined): number | null => (secs == null ? null : Number(secs.toPrecision(3)));

/** Swaps of each set of workers that have rows. */
const SHOWN_SWAPS = 5;

/** Puts a row for each engine of the last swaps into the table. */
export function putSwaps(deployments: DeploymentList, table: RowTable, tick: number): void {
  const shown = new Set<string>();
  const sets = Map.groupBy(deployments.all, ({ set }) => set);
  for (const [index, [set, served]] of [...sets].entries()) {
    for (const entry of set.ledger.latest(SHOWN_SWAPS)) {
      for (const [engine, { stage, error, phases, beganAt }] of entry.engines) {
        const key = `${index}|${entry.seq}|${engine}`;
        shown.add(key);
        const row: SwapRow = {
          key,
          deployments: served.map(({ name }) => name),
          seq: entry.seq,
          identity: entry.identity,
          transition: entry.transition,
          moved_by: entry.mover,
          started_at: entry.startedAt,
          ended_at: entry.endedAt,
          engine,
          stage,
          error,
          began_at: beganAt ?? null,
          phases_ms: phases,
        };
        table.put(key, JSON.stringify(row), tick);
      }
    }
  }
  for (const key of table.keys()) if (!shown.has(key)) table.drop(key, tick);
}
