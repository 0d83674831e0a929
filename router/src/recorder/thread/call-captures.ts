import { bufferOf } from '../../kit/bytes.ts';
import { Captures, type EndedResponse, type OpenCapture, unanswered } from './captures.ts';
import type { ExpertsFiles } from './capture/experts-files.ts';
import type { KnownTokens } from './capture/known-tokens.ts';
import { tokenIds } from './read/sampled.ts';
import { answerValues } from './read/read-answer.ts';
import { knownSpans } from '../../weights/known-versions.ts';
import { release } from './tree/tree-node.ts';
import type { ChatName } from '../shared/turn.ts';
import type { TurnWriter } from './store/writer.ts';
import { type CallAnswer, type CallTokens, readCall } from '../../engines/dialects/calls.ts';
import { tenantKey } from '../../classify/tenant-key.ts';

interface OpenCall extends OpenCapture {
  readonly request: Uint8Array;
}

interface CallParts {
  /** null: no tokenizer is loaded. */
  readonly tree: () => KnownTokens | null;
  /** Resolves when the turns that ended before are in the tree. */
  readonly settled: () => Promise<unknown>;
  readonly writer: TurnWriter;
  readonly files: ExpertsFiles | null;
  readonly keepsBodies: boolean;
  readonly turnsLost: (names: readonly ChatName[]) => void;
}

const NOTHING = Buffer.alloc(0);
const NO_TOKENS = { ids: new Int32Array(0), logprobs: new Float64Array(0), mask: new Uint8Array(0) };

/** Calls of `/v1/messages` and `/v1/responses`: turns with their tokens if the engine returned them, else with their text alone. */
export class CallCaptures extends Captures<OpenCall> {
  readonly #parts: CallParts;

  constructor(parts: CallParts) {
    super(parts.files, true, parts.turnsLost);
    this.#parts = parts;
  }

  protected override openLate(request: Uint8Array): Promise<OpenCall> {
    return Promise.resolve({ request, ...unanswered() });
  }

  protected override async place(call: EndedResponse, { request }: OpenCall, answer: Buffer): Promise<void> {
    // The rest of a stream has its tokens; a response without a body has no turn.
    if (!call.isLast || answer.length === 0) return;
    const { model } = JSON.parse(bufferOf(request).toString()) as { model?: unknown };
    const facts = { ...call.facts, model: typeof model === 'string' ? model : call.facts.model };
    const read = readCall(facts.path, answerValues(call.isStream, answer));
    // A stream without a finish reason was truncated, or its client disconnected.
    const made = { ...read, finishReason: read.finishReason ?? (call.isStream ? 'abort' : null) };
    const bodies = { request, answer };
    const tree = this.#parts.tree();
    if (made.tokens !== null && tree !== null) await this.#putTokens(tree, made, made.tokens, facts, bodies);
    else this.#putText(made, facts, bodies);
  }

  async #putTokens(
    tree: KnownTokens,
    { finishReason, promptTokens, cachedTokens }: CallAnswer,
    { prompt, sampled, logprobs }: CallTokens,
    facts: EndedResponse['facts'],
    bodies: Bodies,
  ): Promise<void> {
    await this.#parts.settled();
    const { tenant, session, model } = facts;
    const opened = await tree.open(tenantKey(tenant, model), tokenIds(prompt), { tenant, session, addSpecial: true });
    try {
      const ids = tokenIds(sampled);
      // The events of these APIs have no token ids of their own, so only weights that stayed are known.
      const known = knownSpans({ index: 0, ids }, false, NOTHING, facts.asked.changes);
      const tokens = { index: 0, ids, logprobs, text: null, spans: [], known, endVersion: null, experts: -1 };
      const made = { ...tokens, finishReason: reasonOf(finishReason), promptTokens, cachedTokens };
      const kept = this.#parts.keepsBodies ? bodies : { request: null, answer: null };
      tree.record(opened, made, facts, { experts: null, ...kept });
    } finally {
      release(opened.end);
    }
  }

  #putText(
    { finishReason, promptTokens, outputTokens, cachedTokens }: CallAnswer,
    all: EndedResponse['facts'],
    bodies: Bodies,
  ): void {
    const { asked: _, ...facts } = all;
    const id = this.#parts.writer.ids.next();
    this.#parts.writer.put({
      ...facts,
      id,
      session: facts.session || id,
      parent: null,
      keeps: 0,
      index: 0,
      ...NO_TOKENS,
      isExact: false,
      versions: [],
      unknownLogprobs: 0,
      promptTokens,
      outputTokens,
      cachedTokens,
      finishReason,
      drift: null,
      experts: null,
      ...bodies,
    });
  }
}

interface Bodies {
  readonly request: Uint8Array;
  readonly answer: Uint8Array;
}

/** How responses end, in the words of other APIs: what stopped an answer is among its tokens. */
const reasonOf = (status: string | null): string | null =>
  status === null ? null : ({ completed: 'stop', max_output_tokens: 'length', cancelled: 'abort' }[status] ?? status);
