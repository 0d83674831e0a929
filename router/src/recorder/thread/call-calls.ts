import { bufferOf } from '../../kit/bytes.ts';
import type { Capture, TurnFacts } from './capture/capture.ts';
import { tokenIds } from './read/sampled.ts';
import { TurnIds } from './capture/turn-id.ts';
import { answerValues } from './read/read-answer.ts';
import { knownSpans } from './read/known-versions.ts';
import { release } from './tree/tree-node.ts';
import type { TurnWriter } from './store/writer.ts';
import { type CallAnswer, type CallTokens, readCall } from '../../engines/dialects/calls.ts';
import { tenantKey } from '../shared/tenant-key.ts';

/** A call of `/v1/messages` or `/v1/responses` that has ended. */
export interface EndedCall {
  readonly request: Uint8Array;
  readonly isStream: boolean;
  /** In pieces: one of megabytes is joined here. */
  readonly answer: readonly Uint8Array[];
  readonly facts: TurnFacts;
}

interface CallParts {
  /** null: no tokenizer is loaded. */
  readonly capture: () => Capture | null;
  /** Resolves when the turns that ended before are in the tree. */
  readonly settled: () => Promise<void>;
  readonly writer: TurnWriter;
  readonly keepsBodies: boolean;
}

const NOTHING = Buffer.alloc(0);
const NO_TOKENS = { ids: new Int32Array(0), logprobs: new Float64Array(0), mask: new Uint8Array(0) };

/** What the recorder thread does with chats that come in other words than those of OpenAI's chat completions. */
export function callCalls({ capture, settled, writer, keepsBodies }: CallParts) {
  const ids = new TurnIds();
  /** Calls become turns in their order. */
  let last: Promise<unknown> = Promise.resolve();

  const putTokens = async (
    made: CallAnswer,
    { prompt, sampled, logprobs }: CallTokens,
    call: EndedCall,
  ): Promise<void> => {
    const { facts, request, answer } = call;
    await settled();
    const { tenant, session } = facts;
    const tree = tenantKey(tenant, facts.model);
    const opened = await capture()!.open(tree, tokenIds(prompt), { tenant, session, addSpecial: true });
    try {
      const kept = {
        experts: null,
        request: keepsBodies ? request : null,
        answer: keepsBodies ? joined(answer) : null,
      };
      const { finishReason, promptTokens, cachedTokens } = made;
      const ids = tokenIds(sampled);
      // The events of these APIs have no token ids of their own, so only weights that stayed are known.
      const known = knownSpans({ index: 0, ids }, false, NOTHING, facts.asked.changes);
      const all = { index: 0, ids, logprobs, text: null, spans: [], known, endVersion: null, experts: -1 };
      capture()!.record(
        opened,
        { ...all, finishReason: reasonOf(finishReason), promptTokens, cachedTokens },
        facts,
        kept,
      );
    } finally {
      release(opened.end);
    }
  };

  const putText = ({ finishReason, promptTokens, outputTokens, cachedTokens }: CallAnswer, call: EndedCall): void => {
    const { session, asked: _, ...facts } = call.facts;
    const id = ids.next();
    writer.put({
      ...facts,
      id,
      session: session || id,
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
      request: call.request,
      answer: joined(call.answer),
    });
  };

  const end = async (call: EndedCall): Promise<void> => {
    const { model } = JSON.parse(bufferOf(call.request).toString()) as { model?: unknown };
    const named = { ...call, facts: { ...call.facts, model: typeof model === 'string' ? model : call.facts.model } };
    const read = readCall(call.facts.path, answerValues(call.isStream, bufferOf(joined(call.answer))));
    // A stream without a finish reason was truncated, or its client disconnected.
    const made = { ...read, finishReason: read.finishReason || (call.isStream ? 'abort' : '') };
    if (made.tokens !== null && capture() !== null) await putTokens(made, made.tokens, named);
    else putText(made, named);
  };

  return {
    callsSettled: (): Promise<unknown> => last,
    /** @returns why it is not on record; '': it is */
    callEnded(call: EndedCall): Promise<string> {
      const done = last
        .then(() => end(call))
        .then(
          () => '',
          (error: unknown) => (error as Error).message,
        );
      last = done;
      return done;
    },
  };
}

/** How responses end, in the words of other APIs: what stopped an answer is among its tokens. */
const reasonOf = (status: string): string =>
  ({ completed: 'stop', max_output_tokens: 'length', cancelled: 'abort' })[status] ?? status;

const joined = (pieces: readonly Uint8Array[]): Uint8Array =>
  pieces.length === 1 ? pieces[0]! : new Uint8Array(Buffer.concat(pieces));
