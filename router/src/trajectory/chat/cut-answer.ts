import type { TokenPieces } from '../tokens/pieces.ts';
import { type Equality, messageKey } from './equality.ts';
import { type Message, textOf } from './message.ts';
import type { ChatTurn } from './session-tree.ts';

type Pieces = Pick<TokenPieces, 'bytesOf'>;

/**
 * The part of an answer that its client got and sends back, as a turn in that answer's place: its ids are those of the sampled tokens
 * whose text came. null: what the client sends is no part of this answer.
 */
export function cutAnswer(turn: ChatTurn, message: Message, equality: Equality, pieces: Pieces): ChatTurn | null {
  const answer = turn.messages.at(-1)!;
  const whole = textOf(answer.content);
  const got = textOf(message.content);
  if (message.role !== answer.role || whole === null || got === null || hasCalls(message)) return null;
  const isPart = got.length < whole.length && whole.startsWith(got);
  // Of an answer that broke off a client may have more than could be told from its stream.
  const isMore = turn.isTorn && got.startsWith(whole);
  if ((!isPart && !isMore) || othersOf(answer, equality) !== othersOf(message, equality)) return null;
  const sampled = turn.ids.subarray(turn.ids.length - turn.sampled);
  const text = bytesOf(sampled, pieces);
  if (text === null) return null;
  const start = startOf(text, withoutOpenLetter(whole), reasoningOf(answer));
  if (start < 0) return null;
  const end = start + Buffer.byteLength(withoutOpenLetter(isPart ? got : whole));
  let tokens = 0;
  let at = 0;
  for (const id of sampled) {
    const { length } = pieces.bytesOf(id)!;
    if (at + length > end) break;
    at += length;
    tokens++;
  }
  const dropped = text.subarray(at).toString();
  return {
    ...turn,
    children: [],
    messages: [...turn.messages.slice(0, -1), message],
    keys: [...turn.keys.slice(0, -1), messageKey(message, equality)],
    ids: turn.ids.subarray(0, turn.ids.length - turn.sampled + tokens),
    sampled: tokens,
    text: turn.text?.endsWith(dropped) === true ? turn.text.slice(0, turn.text.length - dropped.length) : null,
    rest:
      text.subarray(at, start).toString() +
      Buffer.from(got)
        .subarray(Math.max(0, at - start))
        .toString(),
    isTorn: true,
  };
}

/** Engines show bytes of a letter of which the others never came as U+FFFD, which is no text of any token. */
const withoutOpenLetter = (text: string): string => text.replace(/\ufffd+$/, '');

const hasCalls = ({ tool_calls: calls }: Message): boolean => Array.isArray(calls) && calls.length > 0;

const reasoningOf = ({ reasoning_content: own, reasoning: other }: Message): string =>
  typeof own === 'string' ? own : typeof other === 'string' ? other : '';

/** What a message is beside its text, and beside what comes before and after the text in a stream. */
function othersOf(message: Message, equality: Equality): string {
  const { tool_calls: _, reasoning_content: __, reasoning: ___, ...others } = message;
  return messageKey({ ...others, role: message.role, content: '' }, equality);
}

function bytesOf(ids: Int32Array, pieces: Pieces): Buffer | null {
  const parts: Buffer[] = [];
  for (const id of ids) {
    const own = pieces.bytesOf(id);
    if (own === null) return null;
    parts.push(own);
  }
  return Buffer.concat(parts);
}

/** Where the content begins in the text of the sampled tokens: after the reasoning. -1: it is not in it as it is. */
function startOf(text: Buffer, content: string, reasoning: string): number {
  if (reasoning === '') return text.indexOf(content);
  const before = text.indexOf(reasoning);
  return before < 0 ? -1 : text.indexOf(content, before + Buffer.byteLength(reasoning));
}
