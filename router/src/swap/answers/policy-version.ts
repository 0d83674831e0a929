import type { Exchange, ResponseObserver } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { ExchangeView } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import { readNames } from '../../plugins/fireworks/resource-names.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Snapshots } from '../snapshots.ts';
import { clientModel, labelledBody, labelledEvent } from './label-bytes.ts';
import { SampledBy } from './sampled-by.ts';

/** The APIs whose responses have a `model` that becomes `NAME@SNAPSHOT`. */
const labelledPaths: ReadonlySet<string> = new Set(['/v1/chat/completions', '/v1/completions']);

/** Maximum bytes of a response that are read while its engine is paused and its client does not take them. */
const MAX_UNTAKEN_BYTES = 4_194_304;

/** A request on its way. */
interface Followed {
  readonly x: Exchange;
  /** Of the present attempt; null: not sent yet. */
  by: SampledBy | null;
  /** What the client calls the model; '': it does not say. */
  name: string;
  isLabelled: boolean;
  /** Of a response that is no stream: that of its end. */
  whole: string | null;
  /** Bytes that were read since its engine was paused. */
  untakenBytes: number;
}

/** Whether the `model` in the response to this request names the snapshot. `model`: what the client calls it; '' for nothing. */
type IsLabelled = (x: ExchangeView, model: string) => boolean;

/** Says which snapshot sampled a response: in `x-turnout-snapshot`, and in the `model` of chats and completions. */
export class PolicyVersion {
  /** The first of all plugins that change bodies or responses: it reads what the client sent, and what the engine sent. */
  readonly plugins: readonly Plugin[];
  readonly #snapshots: Snapshots;
  readonly #isLabelled: IsLabelled;
  readonly #followed = new WeakMap<ExchangeView, Followed>();
  /** At engines now. */
  readonly #open = new Map<SampledBy, Followed>();

  constructor(snapshots: Snapshots, isLabelled: IsLabelled) {
    this.#snapshots = snapshots;
    this.#isLabelled = isLabelled;
    snapshots.onChange((worker, snapshot) => this.#changed(worker, snapshot));
    snapshots.onPaused((worker, isPaused) => this.#readOn(worker, isPaused));
    const mayBeLabelled = ({ path, head }: ExchangeView): boolean => head.method === 'POST' && labelledPaths.has(path);
    const every: Plugin = {
      name: 'snapshot',
      appliesTo: ({ isGeneration }) => isGeneration,
      requestBody: (x, body, worker) => this.#sent(x, body, worker),
      responseHead: (x, head) => this.#head(x, head),
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

  #sent(x: ExchangeView, body: Buffer, worker: Worker): Buffer {
    const followed = this.#followed.get(x) ?? {
      x: x as Exchange,
      by: null,
      name: '',
      isLabelled: false,
      whole: null,
      untakenBytes: 0,
    };
    this.#followed.set(x, followed);
    if (followed.by !== null) this.#open.delete(followed.by);
    followed.by = new SampledBy(worker, this.#snapshots.of(worker));
    this.#open.set(followed.by, followed);
    return body;
  }

  #named(x: ExchangeView, body: Buffer): Buffer {
    const followed = this.#followed.get(x)!;
    const model = clientModel(body);
    const names = readNames(model);
    // Clients may send a label back.
    followed.name = names === null ? model : names.model || names.deployment;
    followed.isLabelled = this.#isLabelled(x, model);
    // The label is in the text of the response, which must not be compressed.
    if (followed.isLabelled) x.head.drop('accept-encoding');
    return body;
  }

  #changed(worker: Worker, snapshot: string | null): void {
    for (const by of this.#open.keys()) if (by.worker.engineUrl === worker.engineUrl) by.changed(snapshot);
  }

  /** What the engine has sampled must have arrived before the snapshot changes, also where the client reads slowly. */
  #readOn({ engineUrl }: Worker, isOn: boolean): void {
    for (const [by, followed] of this.#open) {
      if (by.worker.engineUrl !== engineUrl || !followed.isLabelled) continue;
      followed.x.readsOn = isOn;
      followed.untakenBytes = 0;
      if (isOn) followed.x.sink.source?.resume();
    }
  }

  #head(x: ExchangeView, head: ResponseHead): void {
    const followed = this.#followed.get(x);
    const by = followed?.by ?? null;
    if (by === null || by.newest === null) return;
    // The head of a whole response comes at its end.
    if (!head.isEventStream) followed!.whole = by.newest;
    const snapshots = head.isEventStream ? by.newest : by.known.join(', ');
    head.add(`x-turnout-snapshot: ${snapshots}\r\n`);
  }

  #observer(x: ExchangeView): ResponseObserver | null {
    const followed = this.#followed.get(x);
    if (followed?.isLabelled !== true) return null;
    // A response that is continued on another worker has another `by` from then on.
    return {
      observe(_, start, end) {
        followed.by?.arrived(end - start);
        if (followed.x.readsOn) followed.x.readsOn = (followed.untakenBytes += end - start) <= MAX_UNTAKEN_BYTES;
      },
    };
  }

  #event(x: ExchangeView, event: Buffer): Buffer {
    const { by = null, isLabelled = false, name = '' } = this.#followed.get(x) ?? {};
    if (by === null || !isLabelled) return event;
    const snapshot = by.passed(event.length);
    return snapshot === null ? event : labelledEvent(event, name, snapshot);
  }

  #body(x: ExchangeView, body: Buffer): Buffer {
    const { isLabelled = false, name = '', whole = null } = this.#followed.get(x) ?? {};
    return !isLabelled || whole === null ? body : labelledBody(body, name, whole);
  }

  #finished(x: ExchangeView): void {
    const by = this.#followed.get(x)?.by ?? null;
    if (by !== null) this.#open.delete(by);
  }
}
