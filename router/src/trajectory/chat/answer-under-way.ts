import type { ChatRequest } from './chat-request.ts';
import type { SessionName } from '../turn.ts';
import type { OpenChat } from './keep-answer.ts';

/** So long a request waits for an answer under way that it goes on from: its client closed that stream, and the close is not known here yet. */
const WAIT_MS = 250;

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
export async function waitForAnswers(
  request: ChatRequest,
  name: Required<SessionName>,
  open: ReadonlyMap<number, OpenChat>,
): Promise<boolean> {
  const answers = answersIn(request, name, open.values());
  if (answers.length === 0) return false;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => (timer = setTimeout(resolve, WAIT_MS, true)));
  const over = Promise.all(answers.map(({ over }) => over.promise)).then(() => false);
  return Promise.race([over, late]).finally(() => clearTimeout(timer));
}
