import { createHash } from 'node:crypto';
import { EventSplitter, joined } from '../../../kit/sse.ts';
import type { ChatRequest } from './chat-request.ts';
import { clientCopy, withoutOurs } from '../../../engines/dialects/chat-copy.ts';
import { type EngineRequest, type RequestedFields, requestedFields } from '../../../engines/dialects/chat.ts';
import { FromCompletion } from '../../../engines/dialects/chat-from-completion.ts';

/** A call that its client may repeat with the same id. */
export interface Repeatable {
  readonly digest: string;
  isStream: boolean;
  form: EngineRequest['form'];
  requested: RequestedFields;
  /** The turn with its answer; null: it is in flight. */
  turn: string | null;
}

/** So many calls of a session can be repeated: a client that lost an answer asks for it soon. */
const MAX_CALLS = 32;

/** The calls of a session by the ids that their clients gave them. */
export class Repeats {
  readonly #calls = new Map<string, Repeatable>();

  get(key: string): Repeatable | undefined {
    return this.#calls.get(key);
  }

  begin(key: string, call: Repeatable): void {
    if (key === '') return;
    this.#calls.delete(key);
    this.#calls.set(key, call);
    if (this.#calls.size > MAX_CALLS) this.#calls.delete(this.#calls.keys().next().value!);
  }

  /** There is no answer to it. */
  drop(key: string, call: Repeatable): void {
    if (this.#calls.get(key) === call) this.#calls.delete(key);
  }
}

/** The call of a turn that is in a store, as it was known to the router that wrote it. */
export const storedCall = (
  request: ChatRequest,
  turn: string,
  answer: { readonly object?: unknown } | undefined,
): Repeatable => ({
  digest: digestOf(request.body),
  isStream: request.isStream,
  form: answer?.object === 'text_completion' ? 'completion' : 'chat',
  requested: requestedFields(request),
  turn,
});

/** A call that begins. */
export const newCall = (body: Uint8Array): Repeatable => ({
  digest: digestOf(body),
  isStream: false,
  form: 'chat',
  requested: {},
  turn: null,
});

const digestOf = (body: Uint8Array): string => createHash('sha256').update(body).digest('base64');

const DONE = Buffer.from('data: [DONE]\n\n');

/** An engine's answer as its client got it. */
export function clientsAnswer({ form, requested, isStream }: Repeatable, answer: Uint8Array): Buffer {
  const bytes = Buffer.from(answer);
  if (!isStream) return clientCopy(bytes, { form, requested }).bytes;
  const fromCompletion = form === 'completion' ? new FromCompletion(requested) : null;
  const events = new EventSplitter(joined).push(bytes);
  // A kill of the router may have kept what ends the stream from the record.
  if (!events.at(-1)?.includes(DONE)) events.push(DONE);
  return Buffer.concat(events.map((event) => fromCompletion?.event(event) ?? withoutOurs(event, requested).bytes));
}
