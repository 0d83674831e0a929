import { generate } from '../../engines/dialects/generate.ts';
import { inference } from '../../engines/dialects/inference.ts';
import type { Exchange, ResponseObserver } from '../../exchange.ts';
import type { EngineWeights, LoadStage } from '../../weights/engine-weights.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { ExchangeView, StateKey } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import { readNames } from '../../plugins/fireworks/resource-names.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { EngineTable } from '../engine-table.ts';
import { clientModel, labelledBody, labelledEvent } from './label-bytes.ts';
import { NamedWeights } from '../../weights/named-weights.ts';
import { SampledBy } from '../../weights/sampled-by.ts';

/** The APIs whose responses have a `model` that becomes `NAME@SNAPSHOT`. */
const labelledPaths: ReadonlySet<string> = new Set(['/v1/chat/completions', '/v1/completions']);

/** A request on its way. */
interface Followed {
  readonly x: Exchange;
  /** Of the present attempt; null: not sent yet. */
  by: SampledBy | null;
  /** Snapshots of the parts that it continued; null: one of them is not known. */
  earlier: readonly string[] | null;
  /** How many of its `seams` are known here. */
  seams: number;
  /** What the client calls the model; '': it does not say. */
  name: string;
  isLabelled: boolean;
  /** Of a response that is no stream: that of its end. */
  whole: string | null;
}

/** Whether the `model` in the response to this request names the snapshot. `model`: what the client calls it; '' for nothing. */
type IsLabelled = (x: ExchangeView, model: string) => boolean;

/** Says which snapshot sampled a response: in `x-turnout-snapshot`, and in the `model` of chats and completions. */
export class PolicyVersion {
  /** The first of all plugins that change bodies or responses: it reads what the client sent, and what the engine sent. */
  readonly plugins: readonly Plugin[];
  readonly #snapshots: EngineTable;
  readonly #isLabelled: IsLabelled;
  readonly #followed: StateKey<Followed> = {};
  /** At engines now. */
  readonly #open = new Map<SampledBy, Followed>();

  constructor(snapshots: EngineTable, isLabelled: IsLabelled) {
    this.#snapshots = snapshots;
    this.#isLabelled = isLabelled;
    snapshots.onChange((worker) => this.#changed(worker));
    snapshots.onLoad((worker, stage) => this.#loads(worker, stage));
    const mayBeLabelled = ({ path, head }: ExchangeView): boolean => head.method === 'POST' && labelledPaths.has(path);
    const every: Plugin = {
      name: 'snapshot',
      appliesTo: ({ isGeneration }) => isGeneration,
      requestBody: (x: Exchange, body, worker) => this.#sent(x, body, worker),
      responseHead: (x, head) => this.#head(x, head),
      observeResponse: (x, head) => this.#names(x, head),
      attemptFailed: (x) => this.#failed(x),
      finished: (x) => this.#finished(x),
    };
    const labelled: Plugin = {
      name: 'policy-version',
      appliesTo: mayBeLabelled,
      requestBody: (x, body) => this.#named(x, body),
      observeResponse: (x) => this.#observer(x),
      responseEvent: (x, event) => this.#event(x, event),
      responseBody: (x, body) => this.#body(x, body),
    };
    this.plugins = [every, labelled];
  }

  #sent(x: Exchange, body: Buffer, worker: Worker): Buffer {
    const followed = x.state(this.#followed) ?? {
      x,
      by: null,
      earlier: [],
      seams: 0,
      name: '',
      isLabelled: false,
      whole: null,
    };
    x.setState(this.#followed, followed);
    if (followed.by !== null) this.#open.delete(followed.by);
    // A request that was placed before the check of its engine began may get to another process.
    followed.by = new SampledBy(
      worker,
      this.#weightsOf(x, worker, ({ isSure }) => isSure),
    );
    this.#open.set(followed.by, followed);
    return body;
  }

  /** A part that ended with tokens stays in the response. */
  #failed(x: ExchangeView): void {
    const followed = x.state(this.#followed);
    if (followed === null || followed.by === null) return;
    const { by, earlier } = followed;
    this.#open.delete(by);
    if (x.seams.length === followed.seams) return;
    followed.seams = x.seams.length;
    followed.earlier = earlier === null || by.known.length === 0 ? null : [...earlier, ...by.known];
  }

  #named(x: ExchangeView, body: Buffer): Buffer {
    const followed = x.state(this.#followed)!;
    const model = clientModel(body);
    const names = readNames(model);
    // Clients may send a label back.
    followed.name = names === null ? model : names.model || names.deployment;
    followed.isLabelled = this.#isLabelled(x, model);
    // The label is in the text of the response, which must not be compressed.
    if (followed.isLabelled) x.refuseCompression();
    return body;
  }

  /** Those of the engine that samples, and of the other engine of a pair; null: one of them is not known, or they differ. */
  #weightsOf(
    x: Exchange,
    worker: Worker,
    counts: (weights: EngineWeights) => boolean = () => true,
  ): EngineWeights | null {
    const weights = this.#snapshots.weightsOf(worker);
    const all = workersOf(x, worker).map((each) => this.#snapshots.weightsOf(each));
    return all.every((each) => each !== null && each.snapshot === weights?.snapshot && counts(each)) ? weights : null;
  }

  #changed({ engineUrl }: Worker): void {
    for (const [by, { x }] of this.#open) {
      if (workersOf(x, by.worker).every((worker) => worker.engineUrl !== engineUrl)) continue;
      const weights = this.#weightsOf(x, by.worker);
      const now = weights === null ? null : { snapshot: weights.snapshot, name: weights.name };
      // What this turn of the event loop still reads was sampled before, too.
      setImmediate(() => by.changed(now));
    }
  }

  /** What the engine has sampled must have arrived before the snapshot changes, also where the client reads slowly. */
  #loads({ engineUrl }: Worker, stage: LoadStage): void {
    for (const [by, { x, isLabelled }] of this.#open) {
      if (by.worker.engineUrl !== engineUrl || !isLabelled) continue;
      if (stage === 'loaded') by.loaded(x.readOnBytes > 0);
      else x.readOn(stage === 'paused');
    }
  }

  /** An engine whose answer names other weights than it should have gets no more requests until it was checked. */
  #names(x: ExchangeView, head: ResponseHead): ResponseObserver | null {
    const followed = x.state(this.#followed);
    const worker = followed?.by?.worker;
    if (worker === undefined || head.status !== 200 || !namesWeights(x, worker, head)) return null;
    const named = new NamedWeights((name) => {
      const by = followed!.by!;
      if (by.named(name) === null) this.#snapshots.doubt(by.worker, name, by.breaks);
    });
    return { observe: (bytes, start, end) => named.push(bytes, start, end) };
  }

  #head(x: ExchangeView, head: ResponseHead): void {
    const followed = x.state(this.#followed);
    const by = followed?.by ?? null;
    if (by === null || by.newest === null) return;
    // The head of a whole response comes at its end.
    if (!head.isEventStream) followed!.whole = by.newest;
    const { earlier } = followed!;
    if (earlier === null || by.known.length === 0) return;
    head.add(`x-turnout-snapshot: ${[...new Set([...earlier, ...by.known])].join(', ')}\r\n`);
  }

  #observer(x: ExchangeView): ResponseObserver | null {
    const followed = x.state(this.#followed);
    if (followed?.isLabelled !== true) return null;
    // A response that is continued on another worker has another `by` from then on.
    return { observe: (_, start, end) => followed.by?.arrived(end - start) };
  }

  #event(x: ExchangeView, event: Buffer): Buffer {
    const { by = null, isLabelled = false, name = '' } = x.state(this.#followed) ?? {};
    if (by === null || !isLabelled) return event;
    const snapshot = by.passed(event.length);
    return snapshot === null ? event : labelledEvent(event, name, snapshot);
  }

  #body(x: ExchangeView, body: Buffer): Buffer {
    const { by = null, isLabelled = false, name = '', whole = null } = x.state(this.#followed) ?? {};
    if (by === null || !isLabelled) return body;
    const named = new NamedWeights();
    named.push(body, 0, body.length);
    const snapshot = named.last === null ? whole : by.named(named.last);
    return snapshot === null ? body : labelledBody(body, name, snapshot);
  }

  #finished(x: ExchangeView): void {
    const by = x.state(this.#followed)?.by ?? null;
    if (by !== null) this.#open.delete(by);
  }
}

/** The engines whose weights are in the response. A prefill engine that has done its part adds nothing more. */
const workersOf = ({ placement, freed }: Exchange, worker: Worker): readonly Worker[] =>
  placement?.legs.map((leg) => leg.worker).filter((each) => each !== freed) ?? [worker];

const NAMING: ReadonlySet<string> = new Set([generate.path, inference.path]);

/** SGLang names weights in all its whole responses and in streams of `/generate`, vLLM in `/inference/v1/generate`. */
function namesWeights({ path }: ExchangeView, { engine }: Worker, { isEventStream }: ResponseHead): boolean {
  return NAMING.has(path) || (engine === 'sglang' && !isEventStream);
}
