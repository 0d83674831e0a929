import { LARGE_BYTES } from '../../threads/sizes.ts';
import { clientBeginning, clientCopy, clientEvent } from '../../engines/dialects/chat-copy.ts';
import { JsonEdit, withMembers } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';

/** The calls that need no state of the recorder thread: small bodies are changed on the caller's own thread. */
export const clientCalls = {
  askingForRawMessages,
  withoutRawMessages: inOwnMemory((bytes: Buffer) => ({ bytes: withoutRawMessages(bytes) })),
  clientBeginning: inOwnMemory(clientBeginning),
  clientCopy: inOwnMemory(clientCopy),
  clientEvent: inOwnMemory(clientEvent),
};

/** A large result that is a part of a larger memory is copied, so that it can be transferred. */
function inOwnMemory<A extends unknown[], R extends { readonly bytes: Buffer }>(call: (...args: A) => R) {
  return (...args: A): R => {
    const made = call(...args);
    const { length, buffer } = made.bytes;
    return length <= LARGE_BYTES || length === buffer.byteLength ? made : { ...made, bytes: Buffer.from(made.bytes) };
  };
}

const OPENING_BRACE = 0x7b;
const NAME = 'enable_response_messages';

/** A request as its engine is to get it. */
export interface WithRawMessages {
  readonly body: Buffer;
  /** Only the router asked for the ids: they are not for its client. */
  readonly isOurs: boolean;
}

/** Asks vLLM (0.32) to tell the ids of prompt and answer beside a response. */
function askingForRawMessages(body: Buffer): WithRawMessages {
  const isAsked = Json.object(body)?.get(NAME)?.isTrue === true;
  const asking = isAsked ? null : withMembers(body, { [NAME]: 'true' });
  return { body: asking ?? body, isOurs: asking !== null };
}

/** A response, or an event of its stream, as an engine writes it that was not asked for ids; all other bytes stay. */
function withoutRawMessages(bytes: Buffer): Buffer {
  const start = bytes.indexOf(OPENING_BRACE);
  if (start < 0 || !bytes.includes('put_messages"')) return bytes;
  const edit = new JsonEdit(bytes);
  const hide = (from: number, end: number, isEvent: boolean): number =>
    edit.members(from, end, (is, { valueStart, to }) => {
      if (is('input_messages') || is('output_messages')) edit.replace(valueStart, to, 'null');
      else if (isEvent && is('response') && bytes[valueStart] === OPENING_BRACE) hide(valueStart, to, false);
      return true;
    });
  return hide(start, bytes.length, true) < 0 ? bytes : edit.result();
}
