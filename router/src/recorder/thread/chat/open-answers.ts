import { areLate } from '../late-answers.ts';
import type { ChatRequest } from '../../shared/chat-request.ts';
import type { ChatName } from '../../shared/turn.ts';
import type { OpenChat } from './keep-answer.ts';

/** @returns the calls of this session whose answer the request has, or a part of it, while it is no turn yet */
function answersIn(request: ChatRequest, { session, tenant }: ChatName, open: Iterable<OpenChat>): OpenChat[] {
  const found: OpenChat[] = [];
  let keys: readonly string[] | null = null;
  for (const each of open) {
    const { messages } = each.turn.request;
    const { chat } = each;
    const isBehind =
      chat.session === session && chat.tenant === tenant && request.messages[messages.length]?.role === 'assistant';
    // Something comes after the answer.
    if (!isBehind || request.messages.length < messages.length + 2 || each.turns.size >= each.choices) continue;
    keys ??= chat.keysOf(request);
    if (chat.keysOf(each.turn.request).every((key, i) => key === keys![i])) found.push(each);
  }
  return found;
}

/**
 * Waits for the answers in flight that the request continues. @returns how many of its messages end with the last of them that is still
 * in flight; 0: none is
 */
export async function waitForAnswers(
  request: ChatRequest,
  name: ChatName,
  open: ReadonlyMap<number, OpenChat>,
): Promise<number> {
  const left = new Set(answersIn(request, name, open.values()));
  await areLate(Array.from(left, (each) => each.over.promise.then(() => void left.delete(each))));
  return Math.max(0, ...Array.from(left, ({ turn }) => turn.request.messages.length + 1));
}
