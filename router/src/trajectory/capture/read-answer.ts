import type { CaptureDialect } from './read-request.ts';
import { readCompletions } from './read-completions.ts';
import { readInference } from './read-inference.ts';
import { readGenerate, readGenerateEvents } from './read-generate.ts';
import { type Sampled, Unreadable } from './sampled.ts';
import { scanGenerate } from './scan-generate.ts';

/** What was sampled, by the answer of an engine. Throws `Unreadable`. */
export function readAnswer(dialect: CaptureDialect, isStream: boolean, bytes: Buffer): Sampled[] {
  const usual = dialect === 'generate' ? scanGenerate(bytes, isStream) : null;
  if (usual !== null) return [usual];
  const events = isStream ? eventsOf(bytes) : [parse(bytes.toString('utf8'))];
  if (dialect === 'completions') return readCompletions(events);
  if (dialect === 'inference') return readInference(events);
  return isStream ? readGenerateEvents(events) : readGenerate(events[0]);
}

/** The JSON of the events of a stream; the last one may be missing its end. */
function eventsOf(bytes: Buffer): unknown[] {
  const events: unknown[] = [];
  const text = bytes.toString('utf8');
  for (const event of text.slice(0, text.lastIndexOf('\n\n') + 1).split('\n\n')) {
    const at = event.indexOf('data:');
    const data = at < 0 ? '' : event.slice(at + 5).trim();
    if (data.startsWith('{')) events.push(parse(data));
  }
  return events;
}

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
