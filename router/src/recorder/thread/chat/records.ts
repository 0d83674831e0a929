import { type Turn, latencyOf } from '../../shared/turn.ts';
import type { ChatSession } from './chat-session.ts';
import { asNumbers } from '../logprobs.ts';
import type { TokenPieces } from '../tokens/pieces.ts';
import { metaInfo } from '../../../engines/dialects/generate.ts';
import { truthOf } from '../../../kit/truth.ts';
import { answerValues, readChatAnswer } from '../read/read-answer.ts';
import { idsUpTo } from './session-tree.ts';

/**
 * A session in the form of miles' session server: `records`, a call each, and `metadata` with the tokens of its newest
 * trajectory. Requests and whole answers are the bytes that passed; streams are put together. A record at a time: together they may be longer
 * than a string of V8.
 */
export async function* sessionRecords(
  chat: ChatSession,
  stored: AsyncIterable<Turn>,
  pieces: TokenPieces,
): AsyncGenerator<Uint8Array> {
  yield Buffer.from(`{"session_id":${JSON.stringify(chat.session)},"records":[`);
  let before = '';
  const turns: object[] = [];
  let last: Turn | null = null;
  for await (const turn of stored) {
    const { id, parent, keeps, index, ids, outputTokens, finishReason, drift } = turn;
    turns.push({
      id,
      parent,
      keeps,
      index,
      tokens: ids.length,
      output_tokens: outputTokens,
      finish_reason: finishReason,
      drift,
    });
    // Choices of one answer are turns of their own.
    const isSameCall = last !== null && last.startedAtMs === turn.startedAtMs && isSame(last.answer, turn.answer);
    if (!isSameCall && turn.request !== null && turn.answer !== null) {
      yield Buffer.from(`${before}${recordOf(turn, pieces)}`);
      before = ',';
    }
    last = turn;
  }
  const metadata = JSON.stringify({ ...sessionMetadata(chat), tree: { turns } });
  yield Buffer.from(`],"metadata":${metadata}}`);
}

/** What is said of a session as a whole. */
export const sessionMetadata = ({ tree }: ChatSession): object => ({
  tito_session_mismatch: [],
  accumulated_token_ids: [...idsUpTo(tree.newest)],
  max_trim_tokens: 0,
});

function recordOf(turn: Turn, pieces: TokenPieces): string {
  const { startedAtMs, path } = turn;
  const request = Buffer.from(turn.request!).toString('utf8');
  const head = {
    timestamp: (startedAtMs + latencyOf(turn)) / 1_000,
    request_timestamp: startedAtMs / 1_000,
    method: 'POST',
    path,
    status_code: 200,
  };
  return `${JSON.stringify(head).slice(0, -1)},"request":${request},"response":${responseOf(turn, request, pieces)}}`;
}

/** The answer as a chat's. */
function responseOf({ answer }: Turn, request: string, pieces: TokenPieces): string {
  const bytes = Buffer.from(answer!);
  const isStream = truthOf((JSON.parse(request) as { stream?: unknown }).stream) === true;
  const values = answerValues(isStream, bytes) as unknown as { object?: string; [member: string]: unknown }[];
  if (!isStream && values[0]!.object === 'chat.completion') return bytes.toString('utf8');
  const { id, created, model } = values[0]!;
  const choices = readChatAnswer(isStream, bytes, pieces).map(({ index, message, finishReason, ids, logprobs }) => {
    const { numbers, unknown } = asNumbers(logprobs ?? new Float64Array(ids.length).fill(NaN));
    return {
      index,
      message,
      logprobs: null,
      finish_reason: finishReason,
      meta_info: {
        ...metaInfo(finishReason ?? '', ids, numbers),
        // Not of SGLang: positions whose 0 is no logprob.
        unknown_logprobs: unknown,
      },
    };
  });
  const usage =
    values.findLast(({ usage: said, choices: of }) => said && Array.isArray(of) && (!isStream || of.length === 0))
      ?.usage ?? null;
  return JSON.stringify({ id, object: 'chat.completion', created, model, choices, usage });
}

const isSame = (a: Uint8Array | null, b: Uint8Array | null): boolean =>
  a !== null && b !== null && Buffer.compare(a, b) === 0;
