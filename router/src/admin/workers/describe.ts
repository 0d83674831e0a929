import type { WorkerApi } from '../../config/options/workers.ts';
import { REASONS, type Worker } from '../../fleet/worker.ts';
import type { Timing } from '../../observe/durations.ts';
import type { WorkersContext } from './context.ts';

/** The value of `connection_mode` in each worker API. */
const connectionModes: Readonly<Record<WorkerApi, string>> = { slime: 'http', sglang: 'HTTP', vllm: 'Http' };

/** A worker for the REST endpoints: the fields of the API first, then this router's own. */
export function describe(context: WorkersContext, worker: Worker) {
  const { workerApi, fleet } = context;
  const { labels } = worker;
  const connection_mode = connectionModes[workerApi];
  const isOf = { url: worker.url, model_id: labels['model_id'] ?? worker.models?.keys().next().value ?? 'unknown' };
  const weights = { priority: Number(labels['priority'] ?? 50), cost: Number(labels['cost'] ?? 1) };
  const state = { worker_type: worker.role, is_healthy: worker.isHealthy, load: fleet.load(worker), connection_mode };
  const bootstrap =
    worker.role === 'regular' && worker.bootstrapPort === null ? {} : { bootstrap_port: worker.bootstrapPort };
  const own = {
    ...bootstrap,
    dp_rank: worker.rank,
    status: statusOf(context, worker),
    circuit_breaker: context.breakers.stateOf(worker),
    engine: worker.engine,
    weight_version: worker.weightVersion,
    models: worker.models === null ? null : [...worker.models.keys()],
    not_serving_because: worker.reasonNames(),
    last_check:
      worker.checkedAtMs === null ? null : { at: new Date(worker.checkedAtMs).toISOString(), error: worker.problem },
    ...(worker.tokenizerMismatch === null ? {} : { tokenizer_mismatch: worker.tokenizerMismatch }),
    last_minute: lastMinuteOf(context, worker),
    ...jobOf(context, worker),
  };
  if (workerApi === 'vllm') return { ...isOf, ...state, ...weights, ...own };
  return {
    id: worker.id,
    ...isOf,
    ...weights,
    ...state,
    metadata: labels,
    disable_health_check: labels['disable_health_check'] === 'true',
    ...own,
  };
}

/** In vllm-router `GET /workers/{url}` has fewer fields than the list. */
export function describeBriefly(context: WorkersContext, worker: Worker) {
  const { url, model_id, is_healthy, ...more } = describe(context, worker);
  return { url, model_id, is_healthy, ...more };
}

/** `draining` after its removal, `pending` until the first passed health check, `failed` if that takes too long or a later check fails. */
function statusOf({ startupTimeoutMs }: WorkersContext, worker: Worker): 'pending' | 'ready' | 'failed' | 'draining' {
  if ((worker.reasons & REASONS.draining) !== 0) return 'draining';
  if (worker.isProven) return (worker.reasons & REASONS.unhealthy) === 0 ? 'ready' : 'failed';
  return performance.now() - worker.addedMs > startupTimeoutMs() ? 'failed' : 'pending';
}

/** Other routers add workers in a job; here the health checks of a new worker stand for it. */
function jobOf(context: WorkersContext, worker: Worker) {
  if (worker.isProven) return {};
  const timestamp = Math.floor((Date.now() - (performance.now() - worker.addedMs)) / 1000);
  const status = statusOf(context, worker);
  return { job_status: { job_type: 'AddWorker', worker_url: worker.url, status, message: worker.problem, timestamp } };
}

/** Means of the generations that ended in the last minute; null: none ended. */
function lastMinuteOf({ meters }: WorkersContext, { url }: Worker) {
  const of = meters.byWorker.get(url);
  const secs = (timing: Timing | undefined): number | null => {
    const mean = timing?.recentSecs(performance.now()) ?? null;
    return mean === null ? null : Number(mean.toPrecision(4));
  };
  return {
    time_to_first_token_secs: secs(of?.firstToken),
    inter_token_gap_secs: secs(of?.tokenGap),
    response_secs: secs(of?.response),
  };
}
