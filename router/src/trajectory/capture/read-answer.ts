import { dataLines } from '../../kit/sse.ts';
import type { CaptureDialect } from './read-request.ts';
import { readCompletions } from './read-completions.ts';
import { readInference } from './read-inference.ts';
import { readGenerate, readGenerateEvents } from './read-generate.ts';
import { type Sampled, Unreadable } from './sampled.ts';

/** What was sampled, by the answer of an engine. Throws `Unreadable`. */
export function readAnswer(dialect: CaptureDialect, isStream: boolean, bytes: Buffer): Sampled[] {
  const text = bytes.toString('utf8');
  const events = isStream ? dataLines(text).filter(isObject).map(parse) : [parse(text)];
  if (dialect === 'completions') return readCompletions(events);
  if (dialect === 'inference') return readInference(events);
  return isStream ? readGenerateEvents(events) : readGenerate(events[0]);
}

/** Not the "[DONE]" that ends a stream. */
const isObject = (data: string): boolean => data.startsWith('{');

function parse(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Unreadable((error as Error).message);
  }
  if (typeof value !== 'object' || value === null) throw new Unreadable('it is no object');
  return value;
}
