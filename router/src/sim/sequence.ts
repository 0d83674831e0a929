/** One prompt and the tokens generated for it: the unit that the scheduler runs. */

import { mix, mixText, unit } from './mix.ts';
import type { Sampler } from './sampler.ts';
import { decode, isSpecial } from './tokenizer.ts';

export interface Sampling {
  maxTokens: number;
  minTokens: number;
  temperature: number;
  topK: number;
  sampleSeed: number;
  ignoreEos: boolean;
  stopTexts: readonly string[];
  stopIds: readonly number[];
  /** Keep the stop text or stop token in the answer's text. */
  showStop: boolean;
  showSpecial: boolean;
}

export type Finish =
  | { type: 'stop'; matched: number | string }
  | { type: 'length' }
  | { type: 'abort'; message: string };

/** What a test has a sequence do in place of chance, at moments that the test chooses. */
export interface SequenceScript {
  /** Sampled in this order; behind them chance goes on, unless `maxTokens` ends the sequence. */
  readonly ids: readonly number[];
  /** With so many tokens the sequence rests until `Core.release`; `onHeld` is called when its sink has been told of them. */
  readonly holdAt?: number;
  readonly onHeld?: () => void;
  /** Of a stream: what follows the event with the finish reason waits for this. */
  readonly beforeEnd?: () => Promise<void>;
}

export interface VersionSpan {
  version: string;
  start: number;
  end: number;
}

/** Ground truth of one sequence, for tests. Times in ms of the engine's clock. */
export interface FinishedRecord {
  id: string;
  requestId: string;
  /** `X-Session-ID` of the request; null without one. */
  session: string | null;
  inputIds: number[];
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
  /** One per output token: the sampler's view it was drawn from. Logprobs are computed from them when asked for. */
  readonly views: number[] = [];
  /** Sampler context of all tokens; set when the prompt has been read. */
  context = 0;
  finish: Finish | null = null;

  /** KV blocks held, in order; `computed` tokens of them are filled and `published` blocks findable. */
  blocks: number[] = [];
  computed = 0;
  published = 0;
  /** Tokens that the first admission found in the prefix cache; -1 before it. */
  cachedTokens = -1;
  preemptions = 0;
  readonly spans: VersionSpan[] = [];
  script: SequenceScript | null = null;
  /** Of its LoRA adapter; null: the engine's own. */
  sampler: Sampler | null = null;
  /** What the batch that it runs in does to its logprobs; 0: nothing. */
  batchNoise = 0;
  batchSeed = 0;

  arrivedMs = 0;
  firstTokenMs: number | null = null;

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

  /** Everything generated as text, stop included; specials only where asked for. A letter is there when all of its bytes are. */
  rawText(): string {
    const to = this.output.length - (this.finish === null ? lettersOpen(this.output) : 0);
    if (this.#decoded < to) {
      this.#text += decode(this.output.slice(this.#decoded, to), this.sampling.showSpecial);
      this.#decoded = to;
    }
    return this.#text;
  }

  /** The answer's text so far: without what ended it, and without what may turn out to be part of a stop text. */
  text(): string {
    const { showStop, stopTexts } = this.sampling;
    const raw = this.rawText();
    if (this.finish?.type === 'stop' && !showStop) {
      const { matched } = this.finish;
      if (typeof matched === 'string') return raw.slice(0, raw.indexOf(matched));
      if (!isSpecial(matched) || this.sampling.showSpecial) return raw.slice(0, raw.length - decode([matched]).length);
      return raw;
    }
    if (this.finish || stopTexts.length === 0) return raw;
    const held = Math.max(...stopTexts.map((text) => text.length)) - 1;
    return raw.slice(0, Math.max(0, raw.length - held));
  }
}

/** How many tokens at the end are bytes of a letter whose other bytes have not come. */
function lettersOpen(ids: readonly number[]): number {
  for (let count = 1; count <= 3; count += 1) {
    const byte = ids.at(-count) ?? 0;
    if (byte < 0x80 || byte > 0xff) return 0;
    if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > count ? count : 0;
  }
  return 0;
}
