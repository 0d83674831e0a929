import { dataLines } from '../../../kit/sse.ts';
import { Unreadable } from './sampled.ts';

/** The JSON values of a response, or of the received events of a stream. Throws `Unreadable`. */
export function answerValues(isStream: boolean, bytes: Buffer): object[] {
  const text = bytes.toString('utf8');
  // Not the "[DONE]" that ends a stream.
  const texts = isStream ? dataLines(text).filter((data) => data.startsWith('{')) : [text];
  return texts.map(parse);
}

function parse(text: string): object {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Unreadable((error as Error).message);
  }
  if (typeof value !== 'object' || value === null) throw new Unreadable('it is no object');
  return value;
}
