import type { Reply } from '../../engines/ask.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { type Finding, note, ok, problem } from './finding.ts';

const PROMPT = 'Hello';
const TOKENS = 4;

/** The lengths of the lists in a response. */
interface Sampled {
  readonly ids: number;
  readonly logprobs: number;
}

/** Generates a few tokens and reports whether the engine returns their ids and logprobs, which exact tokens need. */
export async function checkGeneration(
  facts: EngineFacts,
  post: (path: string, json: string) => Promise<Reply>,
): Promise<Finding> {
  const isSglang = facts.kind === 'sglang';
  const path = isSglang ? '/generate' : '/v1/completions';
  const body = isSglang
    ? { text: PROMPT, sampling_params: { max_new_tokens: TOKENS, temperature: 0 }, return_logprob: true }
    : {
        ...(facts.model === null ? {} : { model: facts.model }),
        prompt: PROMPT,
        max_tokens: TOKENS,
        temperature: 0,
        logprobs: 1,
        return_token_ids: true,
      };
  let reply: Reply;
  try {
    reply = await post(path, JSON.stringify(body));
  } catch (error) {
    return problem(`generates nothing: ${path} sent no response (${(error as Error).message})`);
  }
  if (reply.status !== 200) {
    return problem(`generates nothing: ${path} answers ${reply.status} ${reply.text.slice(0, 200)}`);
  }
  const { ids, logprobs } = (isSglang ? sglangSample : openaiSample)(reply.text);
  if (ids > 0 && logprobs >= ids) return ok(`generates: ${path} answers with ids and logprobs of its tokens`);
  const lacks = [...(ids > 0 ? [] : ['ids']), ...(logprobs > 0 ? [] : ['logprobs'])].join(' and ');
  return note(`generates, but ${path} answers without ${lacks} of its tokens: exact tokens can't be captured there`);
}

function sglangSample(text: string): Sampled {
  const { output_ids: ids, meta_info: info } = parsed(text);
  const logprobs = (info as { output_token_logprobs?: unknown } | undefined)?.output_token_logprobs;
  return { ids: lengthOf(ids) || lengthOf(logprobs), logprobs: lengthOf(logprobs) };
}

function openaiSample(text: string): Sampled {
  const [choice] = (parsed(text)['choices'] ?? []) as {
    token_ids?: unknown;
    logprobs?: { token_logprobs?: unknown };
  }[];
  return { ids: lengthOf(choice?.token_ids), logprobs: lengthOf(choice?.logprobs?.token_logprobs) };
}

const lengthOf = (list: unknown): number => (Array.isArray(list) ? list.length : 0);

function parsed(text: string): Record<string, unknown> {
  try {
    return (JSON.parse(text) ?? {}) as Record<string, unknown>;
  } catch {
    return {};
  }
}
