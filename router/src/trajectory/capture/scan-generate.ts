import { JsonCursor } from '../../kit/json-cursor.ts';
import { KeyTable } from '../../kit/json-keys.ts';
import type { OutputSpan, Sampled } from './sampled.ts';

const ANSWER = new KeyTable(['text', 'output_ids', 'meta_info', 'index']);
const INFO = new KeyTable([
  'finish_reason',
  'prompt_tokens',
  'completion_tokens',
  'cached_tokens',
  'weight_version',
  'output_token_logprobs',
  'weight_versions',
  'routed_experts',
  'indexer_topk',
  'output_top_logprobs',
]);
const REASON = new KeyTable(['type']);
const SPAN = new KeyTable(['version', 'start', 'end']);

const NO_IDS = new Int32Array(0);
const DATA = Buffer.from('data:');
const EVENT_END = Buffer.from('\n\n');

/** Where logprobs are gathered. */
let logprobs = new Float64Array(1024);

/**
 * The usual answer of SGLang's `/generate`, read in one go: one sample, whole or as the one event that is left of its stream, with all
 * its ids. null: it is another kind of answer, or not quite as it should be; `read-generate.ts` knows them all, and says what is wrong. Its ids
 * and logprobs are good until the next thing is read.
 */
export function scanGenerate(bytes: Buffer, isStream: boolean): Sampled | null {
  if (!isStream) return new GenerateScan(bytes, 0, bytes.length).sampled(false);
  const isOneEvent =
    DATA.compare(bytes, 0, Math.min(DATA.length, bytes.length)) === 0 &&
    bytes.indexOf(EVENT_END) === bytes.length - EVENT_END.length;
  return isOneEvent ? new GenerateScan(bytes, DATA.length, bytes.length).sampled(true) : null;
}

class GenerateScan {
  readonly #json: JsonCursor;
  #ids: Int32Array | null = null;
  #text: Buffer | null = null;
  #index = 0;
  #hasInfo = false;
  #isUnusual = false;
  #finishReason = '';
  #promptTokens = -1;
  #total = -1;
  #cachedTokens = -1;
  #version: string | null = null;
  #spans: OutputSpan[] = [];
  #logprobs: Float64Array | null = null;

  constructor(bytes: Buffer, start: number, end: number) {
    this.#json = new JsonCursor(bytes, start, end);
  }

  /** @param isEvent it says itself which sample it is of */
  sampled(isEvent: boolean): Sampled | null {
    this.#json.members(ANSWER, this.#member);
    if (this.#json.hasFailed || !this.#json.isAtEnd || this.#isUnusual) return null;
    const ids = this.#ids;
    const logprobs = this.#logprobs;
    if (!this.#hasInfo || ids === null || ids.length !== this.#total) return null;
    const version = this.#version;
    const spans = this.#spans;
    // One event alone: the version was the same in all of them.
    if (isEvent && spans.length === 0 && ids.length > 0) spans.push({ version, start: 0, end: ids.length });
    return {
      index: isEvent ? this.#index : 0,
      ids,
      logprobs,
      text: this.#text ?? Buffer.alloc(0),
      finishReason: this.#finishReason,
      spans,
      endVersion: spans.length > 0 ? null : version,
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      experts: -1,
    };
  }

  readonly #member = (which: number): void => {
    const json = this.#json;
    if (which === 0) this.#text = json.text();
    else if (which === 1) this.#ids = json.idsInPlace();
    else if (which === 2) {
      this.#hasInfo = true;
      json.members(INFO, this.#info);
    } else this.#index = json.id();
  };

  readonly #info = (which: number): void => {
    const json = this.#json;
    if (which === 0) {
      if (!json.isNull()) json.members(REASON, this.#reason);
    } else if (which === 1) this.#promptTokens = json.id();
    else if (which === 2) this.#total = json.id();
    else if (which === 3) this.#cachedTokens = json.id();
    else if (which === 4) {
      if (!json.isNull()) this.#version = this.#versionName();
    } else if (which === 5) this.#triples();
    else if (which === 6) {
      if (!json.isNull()) json.items(this.#span);
    } else {
      this.#isUnusual ||= !json.isNull();
      if (this.#isUnusual) json.skip();
    }
  };

  #versionName(): string {
    return this.#json.isString ? this.#json.word() : String(this.#json.id());
  }

  readonly #span = (): void => {
    const json = this.#json;
    let version = '';
    let start = 0;
    let end = 0;
    json.members(SPAN, (which) => {
      if (which === 0) version = this.#versionName();
      else if (which === 1) start = json.id();
      else end = json.id();
    });
    this.#spans.push({ version, start, end });
  };

  readonly #reason = (): void => {
    this.#finishReason = this.#json.word();
  };

  /** `[[logprob, id, text], …]`, one for each id. */
  #triples(): void {
    const ids = this.#ids ?? NO_IDS;
    if (logprobs.length < ids.length) logprobs = new Float64Array(2 * ids.length);
    this.#json.pairs(ids, logprobs);
    this.#logprobs = logprobs.subarray(0, ids.length);
  }
}
