import { MemberFinder, keyIs, scanMembers } from '../../kit/json-scan.ts';

const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const NINE = 0x39;
const ZERO = 0x30;

/** Longer ones are read at once: what waits for an answer is in the tree, where prompts with the same beginning share it. */
const MAX_BYTES = 65_536;

const TEXT = 0;
const IDS = 2;
const PARAMS = 4;
const finders = {
  generate: new MemberFinder(['text', 'input_ids', 'sampling_params']),
  inference: new MemberFinder(['features', 'token_ids', 'sampling_params']),
} as const;
const spans = new Int32Array(6);

/**
 * Whether a request with ids, of SGLang's or vLLM's own kind, asks for one sample of one prompt that is ids already. Its engine gets it as it is, so nothing has to be
 * known of it before its answer is here. A look at the outside, on the event loop: what it says is read by the recorder thread.
 */
export function isPlainRequest(dialect: keyof typeof finders, body: Buffer): boolean {
  if (body.length > MAX_BYTES || finders[dialect].find(body, 0, body.length, spans) < 0) return false;
  const ids = spans[IDS]!;
  if (spans[TEXT]! >= 0 || ids < 0 || body[ids] !== OPEN_ARRAY) return false;
  let at = ids + 1;
  while (body[at]! < ZERO) at++;
  // A list of prompts begins with another bracket.
  if (body[at]! > NINE) return false;
  const params = spans[PARAMS]!;
  if (params < 0) return true;
  if (body[params] !== OPEN_OBJECT) return false;
  let isAlone = true;
  scanMembers(body, params, spans[PARAMS + 1]!, (keyStart, keyEnd) => {
    isAlone &&= !keyIs(body, keyStart, keyEnd, 'n');
  });
  return isAlone;
}
