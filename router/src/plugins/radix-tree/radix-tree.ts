import { sessionOf } from '../../classify/keys.ts';
import type { AnswerEar, Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { bufferOf } from '../../kit/bytes.ts';
import { CopyPool } from '../../kit/copy-pool.ts';
import { SLICE_BYTES, copied } from '../../kit/copy-slices.ts';
import type { Logger } from '../../observe/log.ts';
import { type PluginPhases, Refused } from '../../plugin.ts';
import { AnswerTap } from '../../trajectory/capture/answer-tap.ts';
import type { OpenAnswer, OpenCall } from '../../trajectory/capture/capture-calls.ts';
import { type CaptureDialect, dialectOf } from '../../trajectory/capture/read-request.ts';
import { isPlainQuestion } from '../../trajectory/capture/plain-question.ts';
import type { ExpertsTap } from '../../trajectory/capture/experts-tap.ts';
import type { Ledger } from '../../trajectory/ledger.ts';
import type { Trajectories } from '../../trajectory/trajectories.ts';
import { timesOf } from '../../trajectory/turn.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { SameTokens } from '../same-tokens/same-tokens.ts';

export interface RadixTreeOptions {
  readonly forward: 'ids' | 'text';
  readonly completions: boolean;
  readonly verify: boolean;
}

/** What it looks at, beside its options. */
interface RadixTreeSurroundings {
  readonly trajectories: Trajectories;
  readonly sameTokens: SameTokens;
  readonly sessionHeaders: readonly string[];
  readonly log: Logger;
}

/** Larger requests are passed on as they are: nobody's prompt, and copying them would hold the event loop. */
const MAX_BODY_BYTES = 33_554_432;

/** Answers that are copied: most of them come in one piece of this size. */
const ANSWER_BYTES = 16_384;
const SPARE_ANSWERS = 64;

/** What is under way of an exchange whose tokens are looked after. */
interface Following {
  /** 0: the thread learns of the request together with its answer. */
  readonly id: number;
  readonly dialect: CaptureDialect;
  readonly request: Buffer | null;
  readonly opened: Promise<OpenAnswer | null> | null;
  /** Settled: null where its tokens can't be told. */
  answer: OpenAnswer | null;
  tap: AnswerTap | null;
  experts: ExpertsTap | null;
}

/** Sends ids in place of texts, and hears what was sampled behind them. */
export class RadixTree implements PluginPhases {
  /** Requests that went on as they were because the trajectory thread failed at them. */
  failures = 0;
  /** Answers too large to be kept. */
  tooLarge = 0;
  readonly #options: RadixTreeOptions;
  readonly #ledger: Ledger;
  readonly #trajectories: Trajectories;
  readonly #log: Logger;
  readonly #sessionHeaders: readonly string[];
  readonly #following = new WeakMap<Exchange, Following>();
  readonly #sameTokens: SameTokens;
  readonly #answers = new CopyPool(ANSWER_BYTES, SPARE_ANSWERS);
  #nextId = 1;

  constructor(options: RadixTreeOptions, { trajectories, sameTokens, sessionHeaders, log }: RadixTreeSurroundings) {
    this.#options = options;
    this.#sameTokens = sameTokens;
    this.#trajectories = trajectories;
    this.#ledger = trajectories.ledger;
    this.#log = log;
    this.#sessionHeaders = sessionHeaders;
  }

  appliesTo({ path, head }: Exchange): boolean {
    if (head.method !== 'POST' && head.method !== 'PUT') return false;
    const dialect = dialectOf(path);
    return dialect !== null && (dialect !== 'completions' || this.#options.completions);
  }

  requestBody(x: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    if (body.length > MAX_BODY_BYTES) return body;
    const { refusal } = this.#trajectories;
    if (refusal !== null) throw new Refused(refusal);
    const sent = this.#body(x, body);
    return this.#options.verify && sent instanceof Promise ? this.#checked(x, sent, worker) : sent;
  }

  /** Prompts of ids need no tokenizer, so they are not held up by a comparison of tokenizers, nor refused for its result. */
  async #checked(x: Exchange, sending: Promise<Buffer>, worker: Worker): Promise<Buffer> {
    const sent = await sending;
    if (this.#following.get(x)?.answer?.isText !== true) return sent;
    await this.#sameTokens.check(worker).catch((error: unknown) => {
      // A thread that has ended can't compare: the tokens of this request are known already.
      if (error instanceof Refused) throw error;
    });
    return sent;
  }

  hearAnswer(x: Exchange, head: ResponseHead): AnswerEar | null {
    const following = this.#following.get(x);
    if (following === undefined || following.answer === null || head.status !== 200) return null;
    const { isAlone } = following.answer;
    following.tap = new AnswerTap(head.isEventStream, isAlone, following.dialect === 'generate', this.#answers);
    following.experts = this.#trajectories.expertsTap(following.tap);
    return following.experts;
  }

  finished(x: Exchange): void {
    const following = this.#following.get(x);
    if (following === undefined) return;
    this.#following.delete(x);
    const { id, request, tap, experts } = following;
    const expertsKey = experts !== null && experts.hasCut ? experts.key : null;
    if (tap?.isTooLarge === true) this.tooLarge++;
    // Of a stream that broke off, what came was sampled nevertheless.
    const isWhole = tap !== null && !tap.isTooLarge && (tap.isStream || x.outcome === 'complete');
    if (isWhole) {
      const { isStream } = tap;
      const pieces = tap.take();
      const answer = pieces.length === 1 ? pieces[0]! : NOTHING;
      this.#ledger.turnEnded({ id, request, isStream, answer, expertsKey, facts: this.#factsOf(x, isStream) }, pieces);
    } else {
      if (id > 0) this.#ledger.tell('dropCapture', id);
      if (expertsKey !== null) this.#ledger.tell('expertsDrop', expertsKey);
    }
    tap?.free();
  }

  #body(x: Exchange, body: Buffer): Buffer | Promise<Buffer> {
    const following = this.#following.get(x) ?? this.#follow(x, body);
    return following.opened === null ? body : changed(following, following.opened, body);
  }

  #follow(x: Exchange, body: Buffer): Following {
    // The answer has to be read: it may not come compressed.
    x.head.drop('accept-encoding');
    const dialect = dialectOf(x.path)!;
    const following =
      dialect !== 'completions' && isPlainQuestion(dialect, body)
        ? { id: 0, dialect, request: body, opened: null, answer: PLAIN, tap: null, experts: null }
        : this.#open(x, body, dialect);
    this.#following.set(x, following);
    return following;
  }

  #open(x: Exchange, body: Buffer, dialect: CaptureDialect): Following {
    const { tenant, model } = x;
    const id = this.#nextId++;
    const { forward } = this.#options;
    const session = sessionOf(x, this.#sessionHeaders);
    const opened = this.#ask(x, body, { id, dialect, tenant, model, forward, session }).catch((error: unknown) => {
      this.failures++;
      if ((this.failures & (this.failures - 1)) === 0) {
        const detail = { failures: this.failures, error: (error as Error).message };
        this.#log.error(detail, 'tokens could not be looked up: requests go on as they are');
      }
      return null;
    });
    return { id, dialect, request: null, opened, answer: null, tap: null, experts: null };
  }

  async #ask(x: Exchange, body: Buffer, call: Omit<OpenCall, 'body'>): Promise<OpenAnswer | null> {
    // A copy: what a view is on would cross over as a whole.
    const isSmall = body.length <= SLICE_BYTES;
    const copy = isSmall ? new Uint8Array(body) : await copied(body);
    if (x.outcome !== null) return null;
    const opened = await this.#ledger.ask('openCapture', { ...call, body: copy }, isSmall ? [] : [copy.buffer]);
    // Its client left in the meantime, and nobody will close it: what it holds would stay for ever.
    if (x.outcome !== null) this.#ledger.tell('dropCapture', call.id);
    return opened;
  }

  #factsOf(x: Exchange, isStream: boolean) {
    return {
      session: sessionOf(x, this.#sessionHeaders),
      group: x.group,
      tenant: x.tenant,
      model: x.model,
      worker: x.worker?.url ?? '',
      path: x.path,
      ...timesOf(x, isStream),
    };
  }
}

const NOTHING = Buffer.alloc(0);

/** The engine gets it as it is. */
const PLAIN: OpenAnswer = { body: null, isAlone: true, isText: false };

/** The request as its engine is to get it. */
async function changed(following: Following, opened: Promise<OpenAnswer | null>, body: Buffer): Promise<Buffer> {
  following.answer = await opened;
  const other = following.answer?.body ?? null;
  return other === null ? body : bufferOf(other);
}
