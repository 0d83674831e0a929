import type { TokenPieces } from '../tokens/pieces.ts';
import { type Equality, messageKey } from './equality.ts';
import { type Message, textOf } from '../read/message.ts';
import type { ChatTurn } from './session-tree.ts';

type Pieces = Pick<TokenPieces, 'bytesOf'>;

/**
 * The part of an answer that its client got and sends back, as a turn in that answer's place: its ids are those of the sampled tokens
 * whose text came. null: the client's message is not a part of this answer.
 */
export function cutAnswer(turn: ChatTurn, message: Message, equality: Equality, pieces: Pieces): ChatTurn | null {
  const answer = turn.messages.at(-1)!;
  const whole = textOf(answer.content);
  const got = textOf(message.content);
  if (message.role !== answer.role || whole === null || got === null || hasCalls(message)) return null;
  const isPart = got.length < whole.length && whole.startsWith(got);
  // Of a truncated response a client may have more than could be decoded from its stream.
  const isMore = turn.isTorn && got.startsWith(whole);
  if ((!isPart && !isMore) || othersOf(answer, equality) !== othersOf(message, equality)) return null;
  const sampled = piecesOf(turn.ids.subarray(turn.ids.length - turn.sampled), pieces);
  if (sampled === null) return null;
  const text = shown(sampled);
  const start = startOf(text, withoutOpenLetter(whole), reasoningOf(answer));
  if (start < 0) return null;
  const part = isPart ? got : whole;
  const known = text.startsWith(part, start) ? part : withoutOpenLetter(part);
  const kept = piecesIn(text.slice(0, start + known.length), sampled);
  const { length } = shown(kept);
  return {
    ...turn,
    children: [],
    messages: [...turn.messages.slice(0, -1), message],
    keys: [...turn.keys.slice(0, -1), messageKey(message, equality)],
    ids: turn.ids.subarray(0, turn.ids.length - turn.sampled + kept.length),
    sampled: kept.length,
    text: turn.text?.endsWith(text) === true ? turn.text.slice(0, turn.text.length - text.length + length) : null,
    rest: text.slice(length, start) + got.slice(Math.max(0, length - start)),
    isTorn: true,
  };
}

/** Engines return the bytes of an incomplete letter as U+FFFD, which is not the text of a token. The lookbehind makes the search linear. */
const withoutOpenLetter = (text: string): string => text.replace(/(?<!\ufffd)\ufffd+$/, '');

const hasCalls = ({ tool_calls: calls }: Message): boolean => Array.isArray(calls) && calls.length > 0;

const reasoningOf = ({ reasoning_content: own, reasoning: other }: Message): string =>
  typeof own === 'string' ? own : typeof other === 'string' ? other : '';

/** The members of a message beside its text, and beside those that come before and after the text in a stream. */
function othersOf(message: Message, equality: Equality): string {
  const { tool_calls: _, reasoning_content: __, reasoning: ___, ...others } = message;
  return messageKey({ ...others, role: message.role, content: '' }, equality);
}

function piecesOf(ids: Int32Array, pieces: Pieces): Buffer[] | null {
  const parts: Buffer[] = [];
  for (const id of ids) {
    const own = pieces.bytesOf(id);
    if (own === null) return null;
    parts.push(own);
  }
  return parts;
}

/** Incomplete or invalid letters are U+FFFD, as in the text of an answer. */
const shown = (pieces: readonly Buffer[]): string => Buffer.concat(pieces).toString();

/** The leading pieces whose text is in `part`, which is the beginning of all text. */
function piecesIn(part: string, pieces: readonly Buffer[]): readonly Buffer[] {
  let count = 0;
  for (let end = pieces.length; count < end;) {
    const middle = (count + end + 1) >> 1;
    if (shown(pieces.slice(0, middle)).length <= part.length) count = middle;
    else end = middle - 1;
  }
  // The last of them may begin a letter that others complete.
  while (!part.startsWith(shown(pieces.slice(0, count)))) count--;
  return pieces.slice(0, count);
}

/** Where the content begins in the text of the sampled tokens: after the reasoning. -1: the text does not have it unchanged. */
function startOf(text: string, content: string, reasoning: string): number {
  if (reasoning === '') return text.indexOf(content);
  const before = text.indexOf(reasoning);
  return before < 0 ? -1 : text.indexOf(content, before + reasoning.length);
}
