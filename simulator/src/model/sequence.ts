/** One prompt and the tokens generated for it: the unit that the scheduler runs. */

import { mix, mixText, unit } from './mix.ts';
import type { Sampler } from './sampler.ts';
import { endOfTurn, decode, isSpecial } from '../tokens/tokenizer.ts';

export interface Sampling {
  maxTokens: number;
  minTokens: number;
  temperature: number;
  topK: number;
  sampleSeed: number;
  ignoreEos: boolean;
  stopTexts: readonly string[];
  stopIds: readonly number[];
  /** Keep the stop text or stop token in the text of the response. */
  showStop: boolean;
  showSpecial: boolean;
}

export type Finish =
  | { type: 'stop'; matched: number | string }
  | { type: 'length' }
  /** `wasWaiting`: for its first step, or again after it lost its memory. */
  | { type: 'abort'; message: string; wasWaiting?: true };

/** What a sequence does in a test, in place of random sampling. */
export interface SequenceScript {
  /** Sampled in this order; random sampling follows, unless `maxTokens` ends the sequence. */
  readonly ids: readonly number[];
  /** At this many tokens the sequence waits for `Core.release`; `onHeld` is called after its sink was notified. */
  readonly holdAt?: number;
  readonly onHeld?: () => void;
  /** An event of a stream has so many tokens, as with engines that sample several a step, or with `--stream-interval`. */
  readonly eventTokens?: number;
  /** In a stream, what follows the event with the finish reason waits for this. */
  readonly beforeEnd?: () => Promise<void>;
}

export interface VersionSpan {
  version: string;
  start: number;
  end: number;
}

/** The ground truth of one sequence, for tests. Times in ms of the engine's clock. */
export interface FinishedRecord {
  id: string;
  requestId: string;
  /** `X-Session-ID` of the request; null without one. */
  session: string | null;
  inputIds: number[];
  /** Separates its prefix cache from others: cache_salt, extra_key and the model's name. */
  namespace: string;
  outputIds: number[];
  /** Of the output. */
  logprobs: number[];
  finish: Finish;
  cachedTokens: number;
  preemptions: number;
  weightVersions: VersionSpan[];
  arrivedMs: number;
  firstTokenMs: number | null;
  finishedMs: number;
}

export class Sequence {
  readonly id: string;
  readonly prompt: readonly number[];
  readonly sampling: Sampling;
  readonly output: number[] = [];
  /** The sampler's view for each output token, from which logprobs are computed on request. */
  readonly views: number[] = [];
  /** The sampler's context of all tokens; set when the prompt has been read. */
  context = 0;
  finish: Finish | null = null;

  /** KV blocks held, in order; `computed` tokens of them are filled and `published` blocks can be found. */
  blocks: number[] = [];
  computed = 0;
  published = 0;
  /** Tokens that the first admission found in the prefix cache; -1 before it. */
  cachedTokens = -1;
  preemptions = 0;
  readonly spans: VersionSpan[] = [];
  script: SequenceScript | null = null;
  /** vLLM keeps back what may become part of a stop text, and ends its text with one that is shown; SGLang does neither. */
  isOfVllm = false;
  /** Tokens of an event of its stream after the first one. */
  streamInterval = 1;
  /** The name of its LoRA adapter. */
  adapter: string | null = null;
  /** Of its LoRA adapter; null: the engine's own. */
  sampler: Sampler | null = null;
  /** The effect of the batch on its logprobs; 0 for none. */
  batchNoise = 0;
  batchSeed = 0;

  arrivedMs = 0;
  firstTokenMs: number | null = null;

  readonly namespace: string;
  readonly #keys: number[] = [];
  #laneA: number;
  #laneB: number;
  #text = '';
  #decoded = 0;

  /** `namespace` separates prefix caches (cache_salt, extra_key). */
  constructor(id: string, prompt: readonly number[], sampling: Sampling, namespace = '') {
    this.id = id;
    this.prompt = prompt;
    this.sampling = sampling;
    this.namespace = namespace;
    this.#laneA = mixText(0x811c9dc5, namespace);
    this.#laneB = mixText(0x27d4eb2f, namespace);
  }

  get length(): number {
    return this.prompt.length + this.output.length;
  }

  token(position: number): number {
    return position < this.prompt.length ? this.prompt[position]! : this.output[position - this.prompt.length]!;
  }

  /** Keys of the first `count` full blocks. Each covers all tokens before it; two 32-bit lanes make 53 bits. */
  blockKeys(count: number, blockTokens: number): readonly number[] {
    while (this.#keys.length < count) {
      const end = (this.#keys.length + 1) * blockTokens;
      for (let i = end - blockTokens; i < end; i += 1) {
        this.#laneA = mix(this.#laneA, this.token(i));
        this.#laneB = mix(this.#laneB ^ 0x165667b1, this.token(i));
      }
      this.#keys.push((this.#laneA >>> 0) * 0x200000 + (this.#laneB >>> 11));
    }
    return this.#keys;
  }

  append(id: number, view: number, version: string): void {
    this.views.push(view);
    this.output.push(id);
    const last = this.spans.at(-1);
    if (last?.version === version) last.end += 1;
    else this.spans.push({ version, start: this.output.length - 1, end: this.output.length });
  }

  /** Logprob of an output token. */
  logprobAt(i: number, sampler: Sampler): number {
    const logprob = sampler.logprob(this.views[i]!, this.output[i]!);
    return this.batchNoise === 0 ? logprob : logprob - this.batchNoise * unit(mix(this.batchSeed, i));
  }

  /** The generated text with the stop text, and special tokens if requested, without an incomplete character. */
  rawText(): string {
    const to = this.output.length - (this.finish === null ? lettersOpen(this.output) : 0);
    if (this.#decoded < to) {
      this.#text += decode(this.output.slice(this.#decoded, to), this.sampling.showSpecial);
      this.#decoded = to;
    }
    return this.#text;
  }

  /** The text of the response so far, without what ended it or may become part of a stop text. */
  text(): string {
    const { showStop, stopTexts } = this.sampling;
    const raw = this.rawText();
    if (this.finish?.type === 'stop' && !showStop) {
      const { matched } = this.finish;
      if (typeof matched === 'string') return raw.slice(0, raw.indexOf(matched));
      if (!isSpecial(matched) || this.sampling.showSpecial) return raw.slice(0, raw.length - decode([matched]).length);
      return raw;
    }
    if (this.finish?.type === 'stop' && typeof this.finish.matched === 'string' && this.isOfVllm) {
      return raw.slice(0, raw.indexOf(this.finish.matched) + this.finish.matched.length);
    }
    if (this.finish || stopTexts.length === 0 || showStop || !this.isOfVllm) return raw;
    const held = Math.max(...stopTexts.map((text) => text.length)) - 1;
    return raw.slice(0, Math.max(0, raw.length - held));
  }
}

/** How many tokens at the end have no text yet: engines keep text that ends with U+FFFD back, whether its bytes become a character or not. */
function lettersOpen(ids: readonly number[]): number {
  const start = ids.findLastIndex((id) => id < 0x80 || id > 0xff) + 1;
  let end = ids.length;
  while (end > start && decode(ids.slice(start, end)).endsWith('\ufffd')) end -= 1;
  return ids.length - end;
}

/** Whether a sequence has ended, after each token. */

export function finishOf(sequence: Sequence): Finish | null {
  const { output, sampling } = sequence;
  const last = output.at(-1)!;
  if (output.length >= sampling.minTokens) {
    if (last === endOfTurn && !sampling.ignoreEos) return { type: 'stop', matched: last };
    if (sampling.stopIds.includes(last)) return { type: 'stop', matched: last };
    if (sampling.stopTexts.length > 0) {
      const text = sequence.rawText();
      const matched = sampling.stopTexts.find((stop) => text.includes(stop));
      if (matched !== undefined) return { type: 'stop', matched };
    }
  }
  return output.length >= sampling.maxTokens ? { type: 'length' } : null;
}
