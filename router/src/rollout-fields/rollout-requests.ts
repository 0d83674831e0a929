import type { EngineKind } from '../engines/engine.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { Unreadable } from '../generation/delta.ts';
import { RouterError } from '../kit/errors.ts';
import { echoesPrompt } from '../phases/echoes-prompt.ts';
import type { StateKey } from '../phases/exchange-view.ts';
import { promptOnly } from '../phases/prompt-only.ts';
import { type NoPart, type PluginAnswer, type PluginPhases, Refused } from '../plugin.ts';
import { cameByPath } from '../plugins/fireworks/names.ts';
import { LARGE_SCAN_BYTES } from '../threads/sizes.ts';
import { WorkerThread, after } from '../threads/worker-thread.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import { type Changed, answerCalls } from './answer-calls.ts';
import type { AnswerPlan } from './choice.ts';
import { type EngineRequest, engineBody, engineRequest } from './engine-body.ts';
import type { FieldProblem, RolloutFields } from './fields.ts';
import { KeepAliveSink } from './keep-alive.ts';
import type { LayerFacts } from './layers.ts';
import { tooManyExperts } from './routing-rows.ts';
import { StreamEvents } from './stream-events.ts';
import type { PerfMetrics } from './whole-answer.ts';

export interface RolloutOptions {
  readonly baseIdentity: string;
  readonly keepAliveSecs: number;
  readonly engine: 'auto' | EngineKind;
  readonly logprobs: AnswerPlan['logprobs'];
}

/** A request that uses one of the fields. */
interface Asking {
  readonly fields: RolloutFields | FieldProblem;
  /** How the engine of the present attempt is asked. */
  engine: EngineRequest | null;
  layers: LayerFacts | null;
  head: ResponseHead | null;
  keepAlive: KeepAliveSink | null;
  /** Of all parts of a stream: another engine may continue it (`--resume`). */
  stream: StreamEvents | null;
  /** When the first event with tokens came (monotonic ms). */
  firstTokenMs: number | null;
}

const PATHS = ['/v1/completions', '/v1/chat/completions'];

/** The fields of rollout inference: what engines do not have is made of what they have. */
export class RolloutRequests implements PluginPhases {
  readonly #options: RolloutOptions;
  readonly #fleet: Fleet;
  readonly #layersOf: (worker: Worker, model: string) => Promise<LayerFacts | null>;
  readonly #thread = new WorkerThread<typeof answerCalls>('rollout-fields/answers-in-thread', {
    here: answerCalls,
    limits: { fields: LARGE_SCAN_BYTES },
  });
  readonly #asking: StateKey<Asking> = {};

  constructor(
    options: RolloutOptions,
    fleet: Fleet,
    layersOf: (worker: Worker, model: string) => Promise<LayerFacts | null>,
  ) {
    this.#options = options;
    this.#fleet = fleet;
    this.#layersOf = layersOf;
  }

  appliesTo(x: Exchange): boolean {
    return x.head.method === 'POST' && PATHS.includes(x.path);
  }

  /** Only the body says whether the plugin takes part. */
  async classify(x: Exchange): Promise<void | NoPart> {
    const body = await new Promise<Buffer>((resolve) => x.body.whenJoined(resolve));
    const isChat = x.path === PATHS[1];
    const fields = await this.#thread.runOnCopy('fields', body, isChat, cameByPath(x));
    if (fields === null) return { takesPart: false };
    const isStream = !('problem' in fields) && fields.isStream;
    if (!('problem' in fields) && fields.isPromptOnly) x.setState(promptOnly, true);
    if (!('problem' in fields) && fields.echo !== null && !isChat) x.setState(echoesPrompt, true);
    const keepAlive = isStream ? x.wrapSink((sink) => new KeepAliveSink(sink)) : null;
    x.setState(this.#asking, {
      fields,
      engine: null,
      layers: null,
      head: null,
      keepAlive,
      stream: null,
      firstTokenMs: null,
    });
  }

  /** In the form of Fireworks, which its SDK reads. */
  answer(x: Exchange): PluginAnswer | null {
    const fields = x.state(this.#asking)?.fields;
    if (fields === undefined || !('problem' in fields)) return null;
    const error = {
      object: 'error',
      type: 'invalid_request_error',
      code: 'invalid_request_error',
      message: fields.problem,
    };
    return { status: 400, contentType: 'application/json', body: Buffer.from(JSON.stringify({ error })) };
  }

  async requestBody(x: Exchange, body: Buffer, worker: Worker): Promise<Buffer> {
    const asking = x.state(this.#asking);
    const fields = asking?.fields;
    if (asking === null || fields === undefined || 'problem' in fields) return body;
    const engine = this.#kindOf(worker);
    const isPair = (x.placement?.legs.length ?? 1) > 1;
    if (isPair && engine === 'sglang' && fields.echo !== null && !fields.isChat) {
      throw refused(
        'not_with_pairs',
        'The decode engine of a SGLang pair returns no logprobs of the prompt, which echo and echo_last need. Ask POST /generate with return_logprob, or a fleet of regular engines.',
      );
    }
    if (fields.matrix !== null) asking.layers = await this.#layersFor(worker, x.model, fields, engine);
    asking.engine = engineRequest(fields, engine, asking.layers);
    if (asking.engine.isWhole) asking.keepAlive?.start(this.#options.keepAliveSecs * 1000);
    x.refuseCompression();
    return engineBody(body, fields, asking.engine);
  }

  responseHead(x: Exchange, head: ResponseHead): void {
    const asking = x.state(this.#asking);
    if (asking !== null) asking.head = head;
  }

  responseEvent(x: Exchange, event: Buffer): Buffer {
    const asking = x.state(this.#asking);
    if (asking === null || x.status !== 200) return event;
    const plan = this.#planOf(asking);
    if (plan === null) return event;
    asking.firstTokenMs ??= performance.now();
    asking.stream ??= new StreamEvents(plan);
    try {
      return asking.stream.event(event, () => this.#perfOf(x, asking));
    } catch (error) {
      throw error instanceof Unreadable ? notReturned(error.message) : error;
    }
  }

  responseBody(x: Exchange, body: Buffer): Buffer | Promise<Buffer> {
    const asking = x.state(this.#asking);
    const plan = asking === null ? null : this.#planOf(asking);
    if (asking === null || plan === null || x.status !== 200) return body;
    const { isWhole } = asking.engine!;
    const made = this.#thread.runOnCopy(isWhole ? 'chunked' : 'whole', body, plan, this.#perfOf(x, asking));
    return after(made, ({ bytes, problem }: Changed) => {
      if (problem !== null) throw notReturned(problem);
      if (bytes === null) return body;
      if (isWhole) {
        asking.head!.drop('content-type');
        asking.head!.add('content-type: text/event-stream; charset=utf-8\r\n');
      }
      return bytes;
    });
  }

  finished(x: Exchange): void {
    x.state(this.#asking)?.keepAlive?.stop();
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }

  /** null: nothing of the response is to be changed. */
  #planOf({ fields, engine, layers }: Asking): AnswerPlan | null {
    if (engine === null || 'problem' in fields) return null;
    return {
      fields,
      engine: engine.engine,
      layers,
      logprobs: this.#options.logprobs,
      baseIdentity: this.#options.baseIdentity,
    };
  }

  #kindOf({ engine }: Worker): EngineKind {
    const { engine: said } = this.#options;
    return said === 'auto' ? (engine === 'sglang' ? 'sglang' : 'vllm') : said;
  }

  async #layersFor(worker: Worker, model: string, fields: RolloutFields, engine: EngineKind): Promise<LayerFacts> {
    const layers = await this.#layersOf(worker, model);
    if (layers === null) {
      throw refused(
        'bad_request',
        'The router does not know which layers of the model have experts: give the plugin rollout-fields the option modelConfig (the path of config.json) or moeLayers.',
      );
    }
    if (fields.matrix === 'uint8' && (layers.experts ?? 0) > 256)
      throw refused('bad_request', tooManyExperts(layers.experts!));
    if (engine === 'sglang' && !fields.isChat && fields.samples > 1) {
      throw notReturned(
        'SGLang returns the routed experts of the first sample only: send a request for each sample (n: 1).',
      );
    }
    return layers;
  }

  #perfOf(x: Exchange, { fields, firstTokenMs }: Asking): PerfMetrics | null {
    if ('problem' in fields || !fields.perfMetrics) return null;
    const { worker } = x;
    return {
      ...(firstTokenMs === null ? {} : { 'server-time-to-first-token': secs(firstTokenMs - x.startMs) }),
      'server-processing-time': secs(performance.now() - x.startMs),
      ...(worker === null ? {} : { 'num-concurrent-requests': this.#fleet.inFlight[worker.slot]! }),
    };
  }
}

const secs = (ms: number): number => Math.round(ms * 1000) / 1_000_000;

const refused = (code: 'bad_request' | 'not_returned_by_engine' | 'not_with_pairs', message: string): Refused =>
  new Refused(new RouterError(code, message));
const notReturned = (message: string): Refused => refused('not_returned_by_engine', message);
