import type { EngineKind } from '../../engines/engine.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import { REASONS, type Worker } from '../../fleet/worker.ts';

/** Capabilities, by the names of smg 1.13. */
const NOTHING = { pause_modes: [], update_from: [], abort: false, flush_cache: false, sleep_wake: false };
const capabilities: Readonly<Record<EngineKind, object>> = {
  sglang: {
    pause_modes: ['abort', 'retract', 'in_place'],
    update_from: ['disk', 'tensor', 'distributed'],
    abort: true,
    flush_cache: true,
    sleep_wake: true,
    reports_weight_version: true,
  },
  vllm: {
    ...NOTHING,
    pause_modes: ['abort', 'wait', 'keep'],
    update_from: ['disk', 'distributed'],
    sleep_wake: true,
    reports_weight_version: false,
  },
  openai: { ...NOTHING, reports_weight_version: false },
};

/** `worker` is the one with the lowest rank, `ranks` the number of workers. */
export interface Engine {
  readonly worker: Worker;
  readonly ranks: number;
}

export function enginesOf(fleet: Pick<Fleet, 'workers'>): Engine[] {
  const byUrl = Map.groupBy(fleet.workers, ({ engineUrl }) => engineUrl);
  return [...byUrl.values()]
    .map((workers) => ({
      worker: workers.reduce((least, each) => ((each.rank ?? 0) < (least.rank ?? 0) ? each : least)),
      ranks: workers.length,
    }))
    .toSorted((a, b) => (a.worker.engineUrl < b.worker.engineUrl ? -1 : 1));
}

const numberIn = (text: string | undefined): number | null =>
  text !== undefined && /^\s*\d+\s*$/.test(text) ? Number(text) : null;

function healthOf(worker: Worker): 'draining' | 'ready' | 'not_ready' | 'pending' {
  if ((worker.reasons & REASONS.draining) !== 0) return 'draining';
  if (worker.isHealthy) return 'ready';
  return worker.problem === null ? 'pending' : 'not_ready';
}

/** A row of `GET /v1/rl/workers`. */
export function rowOf({ worker, ranks }: Engine) {
  const { labels, engine } = worker;
  return {
    id: worker.id,
    url: worker.url,
    base_url: worker.engineUrl,
    engine: engine === null ? 'unknown' : engine === 'openai' ? 'external' : engine,
    engine_version: worker.engineVersion,
    model_id: labels['model_id'] ?? worker.models?.keys().next().value ?? 'unknown',
    worker_type: worker.role,
    connection_mode: 'http',
    control_url: worker.engineUrl,
    tp_size: numberIn(labels['tp_size']),
    dp_size: numberIn(labels['dp_size']),
    pp_size: numberIn(labels['pp_size']),
    dp_ranks: ranks,
    role: labels['role'] ?? null,
    health: healthOf(worker),
    weight_version: worker.weightVersion,
    labels,
    capabilities: { source: 'static', ...capabilities[engine ?? 'openai'] },
  };
}

/** The names for selectors: labels, and fields of the row. */
export function labelsOf(row: ReturnType<typeof rowOf>): Record<string, string> {
  const { id, url, base_url, engine, model_id: model, worker_type, connection_mode, health, weight_version } = row;
  const version = weight_version === null ? {} : { weight_version };
  return { ...row.labels, id, url, base_url, engine, model, worker_type, connection_mode, health, ...version };
}
