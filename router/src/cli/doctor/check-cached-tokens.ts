import type { Reply } from '../../engines/ask.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { objectIn } from '../../kit/json-object.ts';
import { type Finding, note, ok } from './finding.ts';

/** Several blocks of the prefix cache, which have up to about a thousand tokens (vLLM with hybrid models). */
const PROMPT = 'Hello '.repeat(2_000);
const MAX_REQUESTS = 16;

const FLAGS = { sglang: '--enable-cache-report', vllm: '--enable-prompt-tokens-details', openai: '' } as const;

/**
 * Sends a prompt until the engine reports that tokens of it were cached. Engines leave the count out where it is 0 (vLLM 0.20, SGLang
 * 0.5.23), and each data-parallel rank has a cache of its own.
 *
 * @returns null where this can't be found out
 */
export async function checkCachedTokens(
  { kind, model, hasPrefixCache, dpSize }: EngineFacts,
  post: (path: string, json: string) => Promise<Reply>,
): Promise<Finding | null> {
  if (kind === 'openai' || hasPrefixCache === false) return null;
  const json = JSON.stringify({ ...(model === null ? {} : { model }), prompt: PROMPT, max_tokens: 1, temperature: 0 });
  const count = Math.min(MAX_REQUESTS, 1 + (dpSize ?? 1));
  for (let sent = 0; sent < count; sent++) {
    const reply = await post('/v1/completions', json).catch(() => null);
    if (reply?.status !== 200) return null;
    if (cachedIn(reply.text)) return ok('reports cached tokens in usage');
  }
  return note(
    `reports no cached tokens in usage, so hit rates are not known: start it with ${FLAGS[kind]} (prompt_tokens_details.cached_tokens)`,
  );
}

function cachedIn(text: string): boolean {
  const usage = objectIn(text)?.['usage'] as { prompt_tokens_details?: { cached_tokens?: unknown } | null } | null;
  return typeof usage?.prompt_tokens_details?.cached_tokens === 'number';
}
