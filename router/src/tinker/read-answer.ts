import { completions } from '../engines/dialects/completions.ts';
import { GenerateDelta, generate } from '../engines/dialects/generate.ts';
import { type Delta, type TopTokens, logprobOf } from '../generation/delta.ts';
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

/** Reads what an engine answered to an `engineRequest`: which API it was shows in its members. Runs on a thread where it is large. */
export function readAnswer(body: Buffer, wanted: Wanted): SampleResult | Unusable {
  try {
    return read(body, wanted);
  } catch (error) {
    return unusable(`the engine returned an answer that can't be read (${(error as Error).message})`);
  }
}

function read(body: Buffer, wanted: Wanted): SampleResult | Unusable {
  const { count, prompt, topPrompt, topSampled, wantsPromptLogprobs } = wanted;
  const answer = generate.read(body, 0) ?? completions.read(body, 0);
  if (answer === null && !isJson(body)) return unusable('the engine returned what is not JSON');
  if (answer === null || answer.deltas.length === 0) throw new Error('it has no samples');
  const sequences: Sequence[] = [];
  for (const delta of answer.deltas.toSorted((a, b) => a.index - b.index)) {
    const sequence = sequenceOf(delta, topSampled);
    if ('problem' in sequence) return sequence;
    sequences.push(sequence);
  }
  if (sequences.length !== count) return unusable(`the engine returned ${sequences.length} samples, not ${count}`);
  const { cachedTokens } = answer;
  if (!wantsPromptLogprobs) return { sequences, promptLogprobs: null, topPrompt: null, cachedTokens };
  const rows = answer.promptLogprobs(() => JSON.parse(`[${prompt.toString('latin1')}]`) as number[]);
  if (rows === null) return unusable('the engine returned no logprobs of the prompt');
  return {
    sequences,
    // A floor stays here: vLLM has it in place of a lower logprob, and a token of a prompt may be that unlikely.
    promptLogprobs: Float32Array.from(rows, (row) => row?.logprob ?? NaN),
    topPrompt:
      topPrompt > 0 ? rows.map((row) => (row === null || row.top === null ? null : best(row.top, topPrompt))) : null,
    cachedTokens,
  };
}

function sequenceOf(delta: Delta, topSampled: number): Sequence | Unusable {
  const { finish } = delta;
  const stopReason = finish === 'stop' || finish === 'stop_token' ? 'stop' : finish === 'length' ? 'length' : null;
  if (stopReason === null) return endedBy(delta);
  const triples = delta instanceof GenerateDelta ? delta.triples() : undefined;
  if (triples === null) return unusable('the engine returned no logprobs');
  // SGLang has an id with each logprob.
  const ids = triples?.map(([, id]) => id) ?? delta.ids();
  if (ids === null) return unusable('the engine returned no token ids: vLLM 0.10.2 or newer is needed');
  const logprobs = delta.logprobs() ?? [];
  if (logprobs.length !== ids.length) return unusable('the engine returned no logprob for each token');
  const top = topSampled > 0 ? (delta.top() ?? []).map((row) => best(row, topSampled)) : null;
  return { stopReason, tokens: Int32Array.from(ids), logprobs: Float32Array.from(logprobs, logprobOf), top };
}

const unusable = (problem: string): Unusable => ({ problem, isAborted: false });

/** The sample ended in another way than a model or a limit ends one. */
function endedBy({ finish, failure }: Delta): Unusable {
  const { message = '', status = null } = failure ?? {};
  const isUsers = status !== null && status >= 400 && status < 500;
  const problem = `the engine ended the sample with "${finish ?? 'none'}"${message === '' ? '' : `: ${message}`}`;
  return isUsers ? { problem, isAborted: false, isUsers } : { problem, isAborted: true };
}

function isJson(body: Buffer): boolean {
  try {
    JSON.parse(body.toString());
    return true;
  } catch {
    return false;
  }
}

/** The `count` likeliest: engines add the token itself, wherever it ranks. */
const best = (row: TopTokens, count: number): TopToken[] =>
  row
    .map(([logprob, id]) => [id ?? NaN, logprob ?? NaN] as const)
    .toSorted((a, b) => b[1] - a[1])
    .slice(0, count);
