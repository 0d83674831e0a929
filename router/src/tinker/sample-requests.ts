import type { Exchange } from '../exchange.ts';
import type { Failed, Future, Futures } from './futures.ts';
import type { KeptSamples } from './kept-samples.ts';
import type { Sample } from './sample.ts';
import type { Sampling } from './sampling.ts';
import type { Sessions, Source } from './sessions.ts';
import type { Weights } from './weights.ts';

export interface SampleRequestsParts {
  readonly sessions: Sessions;
  readonly futures: Futures;
  readonly sampling: Sampling;
  readonly weights: Weights;
  /** null: without a data directory nothing outlives the process. */
  readonly kept: KeptSamples | null;
  /** Samples of a tenant. */
  readonly maxOpen: () => number;
  /** What is wrong with the name of a base model; null: nothing. */
  readonly problemOf: (baseModel: string) => Promise<string | null>;
  /**
   * The served model for weights of a model with one of these names. `isAny`: each will do, because all engines get the weights.
   * @returns `served`: several models are served, and none of them is named
   */
  readonly baseModelFor: (
    names: readonly string[],
    isAny: boolean,
  ) => Promise<string | { readonly served: readonly string[] }>;
  /** Finds a sampling session that is not the router's; null: there are no others. */
  readonly learn: ((id: string, x: Exchange) => Promise<Source | Refusal>) | null;
}

/** Requests of open samples, all together. */
const MAX_OPEN_BYTES = 1_073_741_824;

/** What an asample request gets. */
interface Promised {
  readonly future: Future;
  readonly count: number;
  readonly model: string;
}

export interface Refusal {
  readonly status: 400 | 404 | 422 | 429;
  readonly detail: string;
}

/** Takes asample requests in: checks them, gives them a future, and has them sampled. */
export class SampleRequests {
  readonly #parts: SampleRequestsParts;
  readonly #restored: Future[] = [];

  constructor(parts: SampleRequestsParts) {
    this.#parts = parts;
  }

  async take(body: Buffer, x: Exchange): Promise<Promised | Refusal> {
    const { tenant } = x;
    const { futures, sampling, kept, maxOpen } = this.#parts;
    if (futures.sizeOf(tenant) >= maxOpen()) return full('--tinker-max-samples');
    if (sampling.openBytes + body.length > MAX_OPEN_BYTES) return full('1 GiB of open samples');
    const sample = await sampling.read(body);
    if ('detail' in sample) return sample;
    const source = await this.#sourceFor(sample, tenant, x);
    if ('status' in source) return source;
    const asked = sampling.prepare(sample, source);
    if (asked.problem !== null) return { status: 400, detail: asked.problem };
    // Others were taken while this one was read.
    if (futures.sizeOf(tenant) >= maxOpen()) return full('--tinker-max-samples');
    if (sampling.openBytes + asked.bytes > MAX_OPEN_BYTES) return full('1 GiB of open samples');
    const target = targetOf(sample, tenant);
    const future = futures.issue(tenant, target);
    const stored = kept?.keep({ id: future.id, tenant, target, body });
    if (!(await sampling.begin(future, asked))) {
      futures.drop(future);
      return full('--queue-size');
    }
    await stored;
    return { future, count: sample.count, model: source.baseModel };
  }

  /** What was open when the process before ended has its futures again: clients may ask for them from here on. */
  restore(): void {
    const { futures, kept } = this.#parts;
    for (const { id, tenant, target } of kept?.load() ?? []) this.#restored.push(futures.add(id, tenant, target));
  }

  /** Begins what was restored. */
  async resume(): Promise<number> {
    const { futures, sampling } = this.#parts;
    let count = 0;
    for (const future of this.#restored.splice(0)) {
      const asked = future.result === null ? await this.#prepareAgain(future).catch(failed) : null;
      // A client has cancelled it meanwhile.
      if (future.result !== null) continue;
      if (asked === null) futures.drop(future);
      else if ('error' in asked) futures.settle(future, asked);
      else {
        await sampling.begin(future, asked, true);
        count++;
      }
    }
    return count;
  }

  async #prepareAgain({ id, tenant }: Future): Promise<ReturnType<Sampling['prepare']> | null> {
    const { sampling, kept } = this.#parts;
    const body = kept!.bodyOf(id);
    // The router before an upgrade had its result fetched.
    if (body === null) return null;
    const sample = await sampling.read(body);
    if ('detail' in sample) return null;
    const source = await this.#sourceFor(sample, tenant);
    if ('status' in source) return null;
    const asked = sampling.prepare(sample, source);
    return asked.problem === null ? asked : null;
  }

  cancel(future: Future): void {
    this.#parts.sampling.cancel(future);
    // Counts as fetched: no client fetches a cancelled sample, and it must not count as open.
    this.#parts.futures.fetched(future);
  }

  /**
   * Where samples of this model, or of these weights, come from.
   * @param trained the base model of the weights, as the trainer names it; '': it was not asked
   */
  async sourceOf(baseModel: string, modelPath: string, trained = ''): Promise<Source | Refusal> {
    const { weights, problemOf, baseModelFor } = this.#parts;
    if ((baseModel === '') === (modelPath === ''))
      return { status: 400, detail: 'Give one of base_model and model_path.' };
    if (modelPath !== '') {
      const found = await weights.find(modelPath);
      if ('status' in found) return found;
      const { adapter, snapshot } = found;
      const names = [trained, found.baseModel].filter((name) => name !== '');
      const base = await baseModelFor(names, adapter === null);
      if (typeof base === 'string') return { baseModel: base, modelPath, adapter, snapshot };
      return { status: 400, detail: unservedBase(modelPath, names, base.served) };
    }
    const problem = await problemOf(baseModel);
    return problem === null
      ? { baseModel, modelPath, adapter: null, snapshot: null }
      : { status: 404, detail: problem };
  }

  async #sourceFor(sample: Sample, tenant: string, x?: Exchange): Promise<Source | Refusal> {
    const { samplingSession: id, baseModel, modelPath } = sample;
    if (id === '') return this.sourceOf(baseModel, modelPath);
    if (id.includes(':')) return { status: 400, detail: 'sampling_session_id: must not contain ":"' };
    // It is a part of a path and of a header.
    if (!id.isWellFormed() || /\p{Cc}/u.test(id))
      return { status: 400, detail: 'sampling_session_id: must not contain control characters or unpaired surrogates' };
    const { sessions, learn } = this.#parts;
    const found = sessions.sampling(id, tenant);
    if (found !== null) return found;
    if (learn !== null && x !== undefined) return learn(id, x);
    return { status: 404, detail: `There is no sampling session ${id}: it has expired, or was never created.` };
  }
}

const failed = (error: Error): Failed => ({ error: error.message, category: 'server' });

/** What retrieve_futures asks for: those of a sampling session and of one of the SDK's clones of it. */
const targetOf = ({ samplingSession, seqId }: Sample, tenant: string): string =>
  samplingSession === '' ? '' : `${tenant} ${samplingSession} ${BigInt(seqId) / 1_000_000_000n}`;

function unservedBase(modelPath: string, names: readonly string[], served: readonly string[]): string {
  const base = names.length === 0 ? 'its base model, which adapter_config.json does not name' : names.join(' or ');
  return (
    `${modelPath}: no engine serves ${base}, and it is not known which of the served models is meant: ${served.join(', ')}. ` +
    'Set base_model_name_or_path of adapter_config.json to one of these, or start the engines of the base model with its name (--served-model-name).'
  );
}

const full = (limit: string): Refusal => ({ status: 429, detail: `The queue is full (${limit}): try again.` });
