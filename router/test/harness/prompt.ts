import { promptFields, promptOf as promptIn } from '../../src/classify/prompt.ts';
import type { Prompt } from '../../src/exchange.ts';

/** What classify makes of a body's `field` with this value. */
export function promptOf(value: unknown, field: (typeof promptFields)[number] = 'prompt'): Prompt {
  const bytes = Buffer.from(JSON.stringify(value));
  const spans = new Int32Array(2 * promptFields.length).fill(-1);
  const at = 2 * promptFields.indexOf(field);
  spans[at] = 0;
  spans[at + 1] = bytes.length;
  const prompt = promptIn(bytes, spans, 0);
  if (prompt === null) throw new Error(`not a prompt: ${JSON.stringify(value)}`);
  return prompt;
}
