import type { Exchange } from '../../../exchange.ts';
import { setImmediate } from 'node:timers/promises';
import { sessionOf } from '../../../classify/routing-keys.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { copied } from '../../../kit/copy-slices.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { Logger } from '../../../observe/log.ts';
import { Refused } from '../../../plugin.ts';
import { dialectOf, dialects } from '../../../engines/dialects/dialects.ts';
import type { DialectName } from '../../../generation/dialect.ts';
import { isPlainRequest } from '../../shared/read-request.ts';
import type { OpenAnswer } from '../../thread/capture/capture-calls.ts';
import { type CaptureStrategy, type Captured, type Expected, notCaptured } from '../capture.ts';
import type { Recorder } from '../recorder.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';

export interface TextOptions {
  readonly forward: 'ids' | 'text';
  readonly completions: boolean;
  readonly verify: boolean;
}

interface TextState extends Captured {
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
  /** Requests that were sent unchanged because the recorder thread failed. */
  failures = 0;
  /** Responses that are too large for the record. */
  tooLargeResponses = 0;
  readonly #options: TextOptions;
  readonly #recorder: Recorder;
  readonly #tokenizerCheck: TokenizerCheck;
  readonly #log: Logger;

  constructor(options: TextOptions, recorder: Recorder, tokenizerCheck: TokenizerCheck, log: Logger) {
    this.#options = options;
    this.#recorder = recorder;
    this.#tokenizerCheck = tokenizerCheck;
    this.#log = log;
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
    else if (isFirst) state.opened = this.#opened(x, state, body);
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

  async #opened(x: Exchange, state: TextState, body: Buffer): Promise<OpenAnswer | null> {
    const { thread, sessionHeaders, isRequired } = this.#recorder;
    const id = thread.newId();
    state.id = id;
    const { tenant, model } = x;
    const { forward } = this.#options;
    const session = sessionOf(x, sessionHeaders);
    try {
      const copy = await copied(body);
      // A client may close a stream and send its next request at once, on another connection: where both can be read in one or two rounds
      // of the event loop, the request may come first. What the stream had so far has to be known.
      for (let rounds = 0; rounds < 2; rounds++) await setImmediate();
      if (x.outcome !== null) return null;
      const call = { id, dialect: state.dialect, tenant, model, forward, session, body: copy };
      const opened = await thread.ask('openCapture', call, [copy.buffer]);
      // The client disconnected in the meantime: the thread got that before the prompt was held.
      if (x.outcome !== null) thread.tell('captureDropped', { kind: this.kind, id });
      return opened;
    } catch (error) {
      const { message } = error as Error;
      const failures = ++this.failures;
      if ((failures & (failures - 1)) === 0)
        this.#log.error(
          { failures, error: message },
          'token lookup failed: requests are sent unchanged and not captured',
        );
      if (!isRequired) return null;
      const reason = `The tokens of this request can't be captured now, and --capture-required is set: ${message}`;
      throw new Refused(new RouterError('capture_failed', reason));
    }
  }
}

function expectedOf(dialect: DialectName, choices: number, worker: Worker): Expected {
  const isGenerate = dialect === 'generate';
  const isUnnamed = dialect === 'completions' || (isGenerate && !namesSpans(worker));
  return { choices, mayBeCumulative: isGenerate, hasMore: !isGenerate, isUnnamed };
}

/** Releases of SGLang before this one name only the version at the end of an answer, not the spans. */
const [MAJOR, MINOR, PATCH] = [0, 5, 19];

/** Its engine names versions token by token; of an engine that does not tell its release, too. */
function namesSpans({ engineVersion }: Worker): boolean {
  const [, major = 1, minor = 0, patch = 0] = /^(\d+)\.(\d+)\.(\d+)/.exec(engineVersion ?? '')?.map(Number) ?? [];
  if (major !== MAJOR) return major > MAJOR;
  return minor === MINOR ? patch >= PATCH : minor > MINOR;
}
