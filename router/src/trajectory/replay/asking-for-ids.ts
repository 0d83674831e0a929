import { withMembers } from '../../kit/json-edit.ts';

/** vLLM and SGLang; of a chat's streams SGLang tells all ids at their end only. An engine leaves out what it doesn't know. */
const WISHES: Readonly<Record<string, readonly string[]>> = {
  '/v1/completions': ['return_token_ids'],
  '/v1/chat/completions': ['return_token_ids', 'return_output_ids_in_sglext'],
};

/** A request that asks for the ids of what is sampled, too: those of a recorded chat were told to its router, not to its client. */
export function askingForIds(path: string, body: Buffer): Buffer {
  const wishes = WISHES[path];
  if (wishes === undefined) return body;
  return withMembers(body, Object.fromEntries(wishes.map((name) => [name, 'true']))) ?? body;
}
