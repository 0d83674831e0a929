import { createHash } from 'node:crypto';
import { EventSplitter, joined } from '../../../kit/sse.ts';
import type { ChatRequest } from '../../shared/chat-request.ts';
import { clientCopy, withoutOurs } from '../../shared/client-copy.ts';
import type { ChatWishes, EngineRequest } from './engine-request.ts';
import { FromCompletion } from '../../shared/from-completion.ts';

/** A call that its client may repeat with the same id. */
export interface Repeatable {
  readonly digest: string;
  isStream: boolean;
  form: EngineRequest['form'];
  wishes: ChatWishes;
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

/** Of the wishes of a request those that its answer depends on. */
const WISHES = [
  'logprobs',
  'top_logprobs',
  'return_meta_info',
  'return_prompt_token_ids',
  'return_token_ids',
  'return_output_ids_in_sglext',
  'return_input_ids_in_sglext',
  'stream_options',
];

export const wishesOf = ({ fields }: ChatRequest): ChatWishes =>
  Object.fromEntries(WISHES.map((name) => [name, fields[name] ?? null]));

/** The call of a turn that is in a store, as it was known to the router that wrote it. */
export const storedCall = (
  request: ChatRequest,
  turn: string,
  answer: { readonly object?: unknown } | undefined,
): Repeatable => ({
  digest: digestOf(request.body),
  isStream: request.isStream,
  form: answer?.object === 'text_completion' ? 'completion' : 'chat',
  wishes: wishesOf(request),
  turn,
});

/** A call that begins. */
export const newCall = (body: Uint8Array): Repeatable => ({
  digest: digestOf(body),
  isStream: false,
  form: 'chat',
  wishes: {},
  turn: null,
});

const digestOf = (body: Uint8Array): string => createHash('sha256').update(body).digest('base64');

const DONE = Buffer.from('data: [DONE]\n\n');

/** An engine's answer as its client got it. */
export function clientsAnswer({ form, wishes, isStream }: Repeatable, answer: Uint8Array): Buffer {
  const bytes = Buffer.from(answer);
  if (!isStream) return clientCopy(bytes, { form, wishes }).bytes;
  const fromCompletion = form === 'completion' ? new FromCompletion(wishes) : null;
  const events = new EventSplitter(joined).push(bytes);
  // A kill of the router may have kept what ends the stream from the record.
  if (!events.at(-1)?.includes(DONE)) events.push(DONE);
  return Buffer.concat(events.map((event) => fromCompletion?.event(event) ?? withoutOurs(event, wishes).bytes));
}
