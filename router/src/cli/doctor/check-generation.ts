import { completions } from '../../engines/dialects/completions.ts';
import { generate } from '../../engines/dialects/generate.ts';
import type { Reply } from '../../engines/ask.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { withMembers } from '../../kit/json-edit.ts';
import { type Finding, note, ok, problem } from './finding.ts';
import { objectIn } from '../../kit/json-object.ts';
import type { Config } from '../../config/options.ts';

const PROMPT = 'Hello';
const TOKENS = 4;

/** Generates a few tokens and reports whether the engine returns their ids and logprobs, which exact tokens need. */
export async function checkGeneration(
  facts: EngineFacts,
  post: (path: string, json: string) => Promise<Reply>,
): Promise<Finding> {
  const isSglang = facts.kind === 'sglang';
  const dialect = isSglang ? generate : completions;
  const { path, request } = dialect;
  const params = { [request.limit]: TOKENS, temperature: 0 };
  const prompt = { [request.text!]: PROMPT };
  const model = facts.model === null ? {} : { model: facts.model };
  const body = isSglang
    ? { ...prompt, sampling_params: params, return_logprob: true }
    : { ...model, ...prompt, ...params, logprobs: 1 };
  const asking = withMembers(Buffer.from(JSON.stringify(body)), request.asksForIds ?? {})!.toString();
  let reply: Reply;
  try {
    reply = await post(path, asking);
  } catch (error) {
    return problem(`generates nothing: ${path} sent no response (${(error as Error).message})`);
  }
  if (reply.status !== 200) {
    return problem(`generates nothing: ${path} answers ${reply.status} ${reply.text.slice(0, 200)}`);
  }
  const sample = dialect.read(Buffer.from(reply.text), 0)?.deltas[0];
  const ids = sample?.ids()?.length ?? 0;
  const logprobs = sample?.logprobs()?.length ?? 0;
  if (ids > 0 && logprobs >= ids) return ok(`generates: ${path} answers with ids and logprobs of its tokens`);
  const lacks = [...(ids > 0 ? [] : ['ids']), ...(logprobs > 0 ? [] : ['logprobs'])].join(' and ');
  return note(`generates, but ${path} answers without ${lacks} of its tokens: exact tokens can't be captured there`);
}

/** Several blocks of the prefix cache, which have up to about a thousand tokens (vLLM with hybrid models). */
const LONG_PROMPT = 'Hello '.repeat(2_000);
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
  const json = JSON.stringify({
    ...(model === null ? {} : { model }),
    prompt: LONG_PROMPT,
    max_tokens: 1,
    temperature: 0,
  });
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

const PLUGIN = 'rollout-fields';

/** Checks what rollout fields need of the engine and of their plugin's options. */
export function checkRolloutFields({ kind, returnsRoutedExperts }: EngineFacts, config: Config): Finding[] {
  const entry = config.plugin.find((each) => each === PLUGIN || each.startsWith(`${PLUGIN}:`));
  const isLoaded = entry !== undefined || config.swapSnapshots !== undefined || config.deployments.length > 0;
  if (!isLoaded || kind === 'openai') return [];
  const start =
    kind === 'vllm' ? '--logprobs-mode processed_logprobs' : 'its default, without SGLANG_RETURN_ORIGINAL_LOGPROB';
  return [
    ...(entry?.includes('"logprobs"') === true
      ? []
      : [
          note(
            `${PLUGIN}: sampling_logprob, which fireworks-ai's sampler and extract_fireworks_response read, is null except at temperature 1, top_p 1, top_k 0: start the engine with ${start}, and the router with --plugin '${PLUGIN}:{"logprobs":"processed"}'`,
          ),
        ]),
    ...(kind === 'vllm' && returnsRoutedExperts === null
      ? [
          note(
            `${PLUGIN}: does not report whether it returns routed experts: include_routing_matrix needs --enable-return-routed-experts`,
          ),
        ]
      : []),
  ];
}
