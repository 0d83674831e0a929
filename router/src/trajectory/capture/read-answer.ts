import { answerValues } from './answer-values.ts';
import { readCompletions } from './read-completions.ts';
import { readGenerate, readGenerateEvents } from './read-generate.ts';
import { readInference } from './read-inference.ts';
import type { CaptureDialect } from './read-request.ts';
import type { Sampled } from './sampled.ts';

/** What was sampled, by the answer of an engine. Throws `Unreadable`. */
export function readAnswer(dialect: CaptureDialect, isStream: boolean, bytes: Buffer): Sampled[] {
  const values = answerValues(isStream, bytes);
  if (dialect === 'completions') return readCompletions(values);
  if (dialect === 'inference') return readInference(values);
  return isStream ? readGenerateEvents(values) : readGenerate(values[0]);
}
