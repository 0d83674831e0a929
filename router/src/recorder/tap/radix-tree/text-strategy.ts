import type { Exchange } from '../../../exchange.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { Refused } from '../../../plugin.ts';
import { dialectOf, dialects } from '../../../engines/dialects/dialects.ts';
import { namesSpans } from '../../../engines/dialects/generate.ts';
import type { DialectName } from '../../../generation/dialect.ts';
import { isPlainRequest } from '../../shared/read-request.ts';
import type { OpenAnswer } from '../../thread/capture/capture-calls.ts';
import { type CaptureStrategy, type Captured, type Expected, notCaptured } from '../capture.ts';
import type { Recorder } from '../recorder.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import type { TokenLookup } from './token-lookup.ts';

export interface TextOptions {
  readonly forward: 'ids' | 'text';
  readonly completions: boolean;
  readonly verify: boolean;
}

export interface TextState extends Captured {
  readonly dialect: DialectName;
  /** The thread has not got it yet. */
  request: Buffer | null;
  /** What the thread found for it; null: it was not asked yet. */
  opened: Promise<OpenAnswer | null> | null;
}

/** Sends token ids in place of texts, and captures what engines sample. */
export class TextStrategy implements CaptureStrategy<TextState> {
  readonly kind = 'text';
  readonly holdsEnds = true;
  readonly reported = null;
  /** Responses that are too large for the record. */
  tooLargeResponses = 0;
  readonly #options: TextOptions;
  readonly #recorder: Recorder;
  readonly #tokenizerCheck: TokenizerCheck;
  readonly #lookup: TokenLookup;

  constructor(options: TextOptions, recorder: Recorder, tokenizerCheck: TokenizerCheck, lookup: TokenLookup) {
    this.#options = options;
    this.#recorder = recorder;
    this.#tokenizerCheck = tokenizerCheck;
    this.#lookup = lookup;
  }

  begin(x: Exchange): TextState {
    return { ...notCaptured(0), dialect: dialectOf(x.path)!.name, request: null, opened: null };
  }

  tooLarge(): void {}

  overflowed(): void {
    this.tooLargeResponses++;
  }

  open(x: Exchange, state: TextState, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    const dialect = dialectOf(x.path)!.name;
    // The engine of another attempt may be of another kind.
    if (dialect !== state.dialect) {
      if (state.id > 0) this.#recorder.thread.tell('captureDropped', { kind: this.kind, id: state.id });
      Object.assign(state, this.begin(x));
    }
    const isFirst = state.expected === null && state.opened === null;
    if (isFirst && isPlainRequest(dialects[dialect], body)) state.request = body;
    else if (isFirst) {
      state.id = this.#recorder.thread.newId();
      state.opened = this.#lookup.open(x, state, body);
    }
    if (state.opened === null) {
      state.expected = expectedOf(dialect, 1, worker);
      return body;
    }
    return this.#changed(state, state.opened, body, worker);
  }

  takeRequest(state: TextState): Uint8Array | null {
    const { request } = state;
    state.request = null;
    // A copy: the thread takes its memory.
    return request === null ? null : new Uint8Array(request);
  }

  isUnnamed(x: Exchange, { dialect, expected, bracket }: TextState, isStream: boolean): boolean {
    // SGLang names versions in each event, vLLM in the last one.
    if (dialect === 'generate') return false;
    const isCut = x.outcome !== null && x.outcome !== 'complete';
    // Releases without versions in it: what the router knows of its own swaps is to be confirmed.
    if (dialect === 'inference') return isCut || (bracket?.changes.length ?? 0) > 0;
    return isStream || expected?.choices !== 1 || x.worker?.engine !== 'sglang';
  }

  /** The request as its engine is to get it. */
  async #changed(state: TextState, opening: Promise<OpenAnswer | null>, body: Buffer, worker: Worker): Promise<Buffer> {
    const opened = await opening;
    state.isUnknown = opened === null;
    if (opened === null) return body;
    state.expected = expectedOf(state.dialect, opened.choices, worker);
    // Prompts of ids need no tokenizer: they are not delayed by a comparison of tokenizers, nor refused for its result.
    if (this.#options.verify && opened.isText) await this.#compared(worker);
    return opened.body === null ? body : bufferOf(opened.body);
  }

  async #compared(worker: Worker): Promise<void> {
    await this.#tokenizerCheck.check(worker).catch((error: unknown) => {
      // A thread that has ended can't compare: the tokens of this request are known already.
      if (error instanceof Refused) throw error;
    });
  }
}

function expectedOf(dialect: DialectName, choices: number, worker: Worker): Expected {
  const isGenerate = dialect === 'generate';
  const isUnnamed = dialect === 'completions' || (isGenerate && !namesSpans(worker.engineVersion));
  return { choices, mayBeCumulative: isGenerate, hasMore: !isGenerate, isUnnamed };
}
