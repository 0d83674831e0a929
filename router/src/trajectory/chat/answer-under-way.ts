import { areLate } from '../late-answers.ts';
import type { ChatRequest } from './chat-request.ts';
import type { SessionName } from '../turn.ts';
import type { OpenChat } from './keep-answer.ts';

/** @returns the calls of this session whose answer the request has, or a part of it, while it is no turn yet */
function answersIn(
  request: ChatRequest,
  { session, tenant }: Required<SessionName>,
  open: Iterable<OpenChat>,
): OpenChat[] {
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

/** Waits for the answers that the request goes on from, as far as they are under way. @returns whether one of them still is */
export const waitForAnswers = (
  request: ChatRequest,
  name: Required<SessionName>,
  open: ReadonlyMap<number, OpenChat>,
): Promise<boolean> => areLate(answersIn(request, name, open.values()).map(({ over }) => over.promise));
