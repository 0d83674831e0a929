import type { ChatRequest } from './chat-request.ts';
import type { ChatName, Turn } from '../../shared/turn.ts';
import { type OpenCapture, areLate } from '../captures.ts';
import type { ChoiceEvents } from '../read/choice-events.ts';
import type { OpenTurn } from './chat-session.ts';
import type { Claim } from './claims.ts';

/** A chat whose response is incomplete. */
export interface OpenChat extends Claim, OpenCapture {
  readonly turn: OpenTurn;
  isExact: boolean;
  readonly hidesExperts: boolean;
  /** No other plugin has changed the client's request. */
  readonly isAsAsked: boolean;
  readonly choices: number;
  /** Of the response so far. */
  readonly events: ChoiceEvents;
  /** Made of the response so far, by the numbers of their choices. */
  readonly turns: Map<number, Turn>;
}

/**
 * Waits for the responses in flight that a request continues. @returns how many of its messages end with the last of them that is still
 * in flight; 0: none is
 */
export async function waitForAnswers(open: Iterable<OpenChat>, request: ChatRequest, name: ChatName): Promise<number> {
  const left = new Set(answersIn(open, request, name));
  await areLate(Array.from(left, (each) => each.over.promise.then(() => void left.delete(each))));
  return Math.max(0, ...Array.from(left, ({ turn }) => turn.request.messages.length + 1));
}

/** The calls of a session whose response the request has, or a part of it, while it is no turn yet. */
function answersIn(open: Iterable<OpenChat>, request: ChatRequest, { session, tenant }: ChatName): OpenChat[] {
  let keys: readonly string[] | null = null;
  return [...open].filter(({ chat, turn, turns, choices }) => {
    const { length } = turn.request.messages;
    const isBehind =
      chat.session === session && chat.tenant === tenant && request.messages[length]?.role === 'assistant';
    // Something comes after the answer.
    if (!isBehind || request.messages.length < length + 2 || turns.size >= choices) return false;
    const asked = (keys ??= chat.keysOf(request));
    return chat.keysOf(turn.request).every((key, i) => key === asked[i]);
  });
}
