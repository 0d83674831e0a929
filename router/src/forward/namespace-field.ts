import { createHash } from 'node:crypto';
import type { EngineKind } from '../engines/engine.ts';
import { withMembers } from '../kit/json-edit.ts';
import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';

/** By which field an engine separates its prompt caches (vLLM 0.33; SGLang 0.5.23, whose /generate takes no cache_salt in older releases). */
const fields = { vllm: 'cache_salt', sglang: 'extra_key' } as const;

const finders = {
  vllm: new MemberFinder([fields.vllm, 'prompt_cache_isolation_key']),
  sglang: new MemberFinder([fields.sglang, 'prompt_cache_isolation_key']),
} as const;

/**
 * A request's body with its prompt-cache namespace for this kind of engine. The client's own field and its `prompt_cache_isolation_key` are
 * parts of it: requests share a cache only if all three are equal.
 * @param namespace '' adds nothing of the router's own
 * @returns the same buffer if there is nothing to add
 */
export function withNamespace(body: Buffer, engine: EngineKind | null, namespace: string): Buffer {
  if (engine !== 'vllm' && engine !== 'sglang') return body;
  const spans = new Int32Array(4);
  if (finders[engine].find(body, 0, body.length, spans) < 0) return body;
  const [ownStart, ownEnd, isolationStart, isolationEnd] = spans as unknown as [number, number, number, number];
  const isolation = isolationStart < 0 ? '' : (readString(body, isolationStart, isolationEnd) ?? '');
  if (namespace === '' && isolation === '') return body;
  const digest = (own: string): string => JSON.stringify(digestOf([namespace, isolation, own]));
  const value = ownStart < 0 ? digest('') : valueOf(body, ownStart, ownEnd, digest);
  return withMembers(body, { [fields[engine]]: value }) ?? body;
}

/** SGLang takes one key for each prompt of a list. */
function valueOf(body: Buffer, start: number, end: number, digest: (own: string) => string): string {
  const made: string[] = [];
  const after = scanItems(body, start, end, (from, to) => {
    made.push(digest(readString(body, from, to) ?? ''));
  });
  return after < 0 ? digest(readString(body, start, end) ?? '') : `[${made.join()}]`;
}

const digestOf = (parts: readonly string[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('base64url');
