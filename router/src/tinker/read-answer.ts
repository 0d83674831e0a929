import type { Sample, SampleResult, Sequence, TopToken } from './sample.ts';

/** Why an answer is no result. */
export interface Unusable {
  readonly problem: string;
  /** The engine stopped before the end (`abort`): the sample is to be tried again. */
  readonly isAborted: boolean;
  /** The engine refuses the request itself. */
  readonly isUsers?: true;
}

/** What the sample asked for. `prompt` is read only for logprobs of it. */
export type Wanted = Pick<Sample, 'count' | 'prompt' | 'topPrompt' | 'topSampled' | 'wantsPromptLogprobs'>;

/** Reads what an engine answered to an `engineRequest`: which one shows in its fields. Runs on a thread where it is large. */
export function readAnswer(body: Buffer, wanted: Wanted): SampleResult | Unusable {
  let answer: unknown;
  try {
    answer = JSON.parse(body.toString());
  } catch {
    return unusable('the engine returned what is not JSON');
  }
  try {
    const result = isSglang(answer) ? fromSglang(answer, wanted) : fromVllm(answer as VllmAnswer, wanted);
    if ('problem' in result || result.sequences.length === wanted.count) return result;
    return unusable(`the engine returned ${result.sequences.length} samples, not ${wanted.count}`);
  } catch (error) {
    return unusable(`the engine returned an answer that can't be read (${(error as Error).message})`);
  }
}

const unusable = (problem: string): Unusable => ({ problem, isAborted: false });

interface Finish {
  readonly type?: string;
  readonly message?: string;
  readonly status_code?: number | null;
}

/** @returns null: the sample ended in another way than a model or a limit ends one */
function stopReasonOf(finish: string | undefined): Sequence['stopReason'] | null {
  return finish === 'stop' || finish === 'stop_token' ? 'stop' : finish === 'length' ? 'length' : null;
}

function endedBy({ type = 'none', message = '', status_code: status }: Finish): Unusable {
  const isUsers = (status ?? 0) >= 400 && status! < 500;
  const problem = `the engine ended the sample with "${type}"${message === '' ? '' : `: ${message}`}`;
  return isUsers ? { problem, isAborted: false, isUsers } : { problem, isAborted: true };
}

// ---- vLLM: /v1/completions and /inference/v1/generate ----

type Row = Readonly<Record<string, { readonly logprob: number }>> | null;

interface ContentToken {
  readonly logprob: number | null;
  readonly top_logprobs?: readonly { readonly token?: string; readonly token_id?: number; readonly logprob: number }[];
}

interface VllmChoice {
  readonly token_ids?: readonly number[] | null;
  readonly finish_reason?: string | null;
  readonly logprobs?: {
    readonly token_logprobs?: readonly (number | null)[];
    readonly top_logprobs?: readonly (Readonly<Record<string, number>> | null)[];
    readonly content?: readonly ContentToken[];
  } | null;
  readonly prompt_logprobs?: readonly Row[] | null;
}

interface VllmAnswer {
  readonly choices: readonly (VllmChoice & { readonly index?: number })[];
  readonly prompt_logprobs?: readonly Row[] | null;
  readonly usage?: { readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null } | null;
}

function fromVllm({ choices, prompt_logprobs, usage }: VllmAnswer, wanted: Wanted): SampleResult | Unusable {
  const sequences: Sequence[] = [];
  for (const choice of choices.toSorted((a, b) => (a.index ?? 0) - (b.index ?? 0))) {
    const { token_ids: ids, finish_reason: finish, logprobs } = choice;
    const stopReason = stopReasonOf(finish ?? undefined);
    if (stopReason === null) return endedBy({ type: finish ?? 'none' });
    if (!Array.isArray(ids)) return unusable('the engine returned no token ids: vLLM 0.10.2 or newer is needed');
    const { content } = logprobs ?? {};
    const values = content?.map(({ logprob }) => logprob) ?? logprobs?.token_logprobs ?? [];
    if (values.length !== ids.length) return unusable('the engine returned no logprob for each token');
    const rows = content?.map(topOfContent) ?? logprobs?.top_logprobs?.map(topOfNames) ?? [];
    const top = wanted.topSampled > 0 ? rows.map((row) => best(row, wanted.topSampled)) : null;
    sequences.push({ stopReason, tokens: Int32Array.from(ids), logprobs: floats(values), top });
  }
  const rows = wanted.wantsPromptLogprobs ? (prompt_logprobs ?? choices[0]?.prompt_logprobs ?? null) : null;
  if (wanted.wantsPromptLogprobs && rows === null) return unusable('the engine returned no logprobs of the prompt');
  return { sequences, ...promptOf(rows, wanted), cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? null };
}

/** The logprob of a token of the prompt is beside those of likelier ones, by its id. */
function promptOf(
  rows: readonly Row[] | null,
  { prompt, topPrompt }: Wanted,
): Pick<SampleResult, 'promptLogprobs' | 'topPrompt'> {
  if (rows === null) return { promptLogprobs: null, topPrompt: null };
  const ids = JSON.parse(`[${prompt.toString('latin1')}]`) as number[];
  const all = (row: NonNullable<Row>): TopToken[] =>
    Object.entries(row).map(([id, { logprob }]) => [Number(id), logprob]);
  return {
    promptLogprobs: floats(rows.map((row, i) => row?.[ids[i]!]?.logprob ?? null)),
    topPrompt: topPrompt > 0 ? rows.map((row) => row && best(all(row), topPrompt)) : null,
  };
}

const NAMED = 'token_id:';
const idOf = (name: string): number => (name.startsWith(NAMED) ? Number(name.slice(NAMED.length)) : NaN);
const topOfNames = (row: Readonly<Record<string, number>> | null): TopToken[] =>
  Object.entries(row ?? {}).map(([name, logprob]) => [idOf(name), logprob]);
const topOfContent = ({ top_logprobs = [] }: ContentToken): TopToken[] =>
  top_logprobs.map(({ token, token_id, logprob }) => [token_id ?? idOf(token ?? ''), logprob]);

// ---- SGLang: /generate ----

type Triple = readonly [logprob: number | null, id: number, text: string | null];

interface SglangAnswer {
  readonly output_ids?: readonly number[];
  readonly meta_info: {
    readonly finish_reason?: Finish | null;
    readonly cached_tokens?: number;
    readonly output_token_logprobs?: readonly Triple[];
    readonly output_top_logprobs?: readonly (readonly Triple[] | null)[];
    readonly input_token_logprobs?: readonly Triple[];
    readonly input_top_logprobs?: readonly (readonly Triple[] | null)[];
  };
}

function isSglang(answer: unknown): answer is SglangAnswer | SglangAnswer[] {
  return Array.isArray(answer) || (typeof answer === 'object' && answer !== null && 'meta_info' in answer);
}

function fromSglang(answer: SglangAnswer | SglangAnswer[], wanted: Wanted): SampleResult | Unusable {
  const answers = Array.isArray(answer) ? answer : [answer];
  const sequences: Sequence[] = [];
  for (const { meta_info: info } of answers) {
    const stopReason = stopReasonOf(info.finish_reason?.type);
    if (stopReason === null) return endedBy(info.finish_reason ?? {});
    const triples = info.output_token_logprobs;
    if (triples === undefined) return unusable('the engine returned no logprobs');
    sequences.push({
      stopReason,
      tokens: Int32Array.from(triples, ([, id]) => id),
      logprobs: floats(triples.map(([logprob]) => logprob)),
      top:
        wanted.topSampled > 0
          ? (info.output_top_logprobs ?? []).map((row) => best(topOf(row), wanted.topSampled))
          : null,
    });
  }
  const { input_token_logprobs: own, input_top_logprobs: top = [], cached_tokens = null } = answers[0]!.meta_info;
  if (!wanted.wantsPromptLogprobs)
    return { sequences, promptLogprobs: null, topPrompt: null, cachedTokens: cached_tokens };
  if (own === undefined) return unusable('the engine returned no logprobs of the prompt');
  return {
    sequences,
    promptLogprobs: floats(own.map(([logprob]) => logprob)),
    topPrompt: wanted.topPrompt > 0 ? own.map((_, i) => (top[i] ? best(topOf(top[i]), wanted.topPrompt) : null)) : null,
    cachedTokens: cached_tokens,
  };
}

const topOf = (row: readonly Triple[] | null): TopToken[] => (row ?? []).map(([logprob, id]) => [id, logprob ?? NaN]);

// ---- both ----

/** The `count` likeliest: engines add the token itself, wherever it ranks. */
const best = (row: readonly TopToken[], count: number): TopToken[] =>
  row.toSorted((a, b) => b[1] - a[1]).slice(0, count);

const floats = (values: readonly (number | null)[]): Float32Array => Float32Array.from(values, (value) => value ?? NaN);
