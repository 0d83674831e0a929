import { LARGE_BYTES } from '../../threads/sizes.ts';
import { askingForRawMessages, withoutRawMessages } from './raw-messages.ts';
import { clientBeginning, clientCopy, clientEvent } from '../../engines/dialects/chat-copy.ts';

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
