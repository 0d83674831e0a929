import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { calculate } from './calculator.ts';

/** A rollout batch as RL training does it: groups of samples per prompt, each a trajectory of several turns with a tool. */

interface Problem {
  readonly question: string;
  readonly steps: readonly string[];
  readonly answer: number;
}

/** One turn of one trajectory, as it is written to disk. */
export interface Turn {
  readonly group: number;
  readonly sample: number;
  readonly turn: number;
  readonly session: string;
  readonly requestId: string;
  readonly attempts: number;
  readonly ms: number;
  readonly ttftMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly finishReason: string;
  readonly tokenIds: readonly number[];
  readonly text: string;
}

export interface RolloutOptions {
  readonly baseUrl: string;
  readonly samplesPerPrompt: number;
  readonly maxTokens: number;
  readonly onTurn: (turn: Turn) => void;
  readonly onFailed: (error: Error) => void;
}

const problems = JSON.parse(readFileSync(new URL('problems.json', import.meta.url), 'utf8')) as Problem[];

/** Long enough that finding it in an engine's cache, or not, shows. */
const systemPrompt = [
  'You solve word problems with a calculator. Work in steps: name the next expression, wait for its value, go on.',
  ...Array.from({ length: 40 }, (_, i) => `Rule ${i + 1}: write one expression a turn, use whole numbers, keep units.`),
].join('\n');

/** How often a turn is asked again when its engine dies under it; the router only retries what has not begun to answer. */
const MAX_TRIES = 5;

export const turnsPerBatch = (samplesPerPrompt: number): number =>
  problems.reduce((total, { steps }) => total + steps.length, 0) * samplesPerPrompt;

/** Runs all trajectories at once. */
export async function runBatch(options: RolloutOptions): Promise<void> {
  const client = new OpenAI({ baseURL: `${options.baseUrl}/v1`, apiKey: 'none', maxRetries: 0, timeout: 600_000 });
  await Promise.all(
    problems.flatMap((problem, group) =>
      Array.from({ length: options.samplesPerPrompt }, async (_, sample) => {
        try {
          await runTrajectory(client, options, problem, group, sample);
        } catch (error) {
          options.onFailed(error as Error);
        }
      }),
    ),
  );
}

async function runTrajectory(client: OpenAI, options: RolloutOptions, problem: Problem, group: number, sample: number) {
  const session = `demo-${group}-${sample}`;
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    { role: 'system', content: systemPrompt },
    { role: 'user', content: problem.question },
  ];
  for (const [turn, step] of problem.steps.entries()) {
    const seed = group * 1000 + sample;
    const answer = await ask(client, { messages, seed, maxTokens: options.maxTokens, session });
    options.onTurn({ group, sample, turn, session, ...answer });
    messages.push({ role: 'assistant', content: answer.text });
    messages.push({ role: 'user', content: `The calculator says: ${step} = ${calculate(step)}` });
  }
}

interface Question {
  readonly messages: readonly OpenAI.ChatCompletionMessageParam[];
  readonly seed: number;
  readonly maxTokens: number;
  readonly session: string;
}

async function ask(client: OpenAI, question: Question): Promise<Omit<Turn, 'group' | 'sample' | 'turn' | 'session'>> {
  for (let attempts = 1; ; attempts++) {
    try {
      return { ...(await stream(client, question)), attempts };
    } catch (error) {
      if (attempts === MAX_TRIES) throw error;
    }
  }
}

async function stream(client: OpenAI, { messages, seed, maxTokens, session }: Question) {
  const startMs = performance.now();
  const request: OpenAI.ChatCompletionCreateParamsStreaming & { return_token_ids: boolean } = {
    model: 'sim',
    messages: [...messages],
    stream: true,
    stream_options: { include_usage: true },
    temperature: 1,
    seed,
    max_tokens: maxTokens,
    // Not an OpenAI field: engines know it, and the router passes on what it doesn't know.
    return_token_ids: true,
  };
  const { data, response } = await client.chat.completions
    .create(request, { headers: { 'x-session-id': session } })
    .withResponse();
  let text = '';
  let ttftMs = 0;
  let finishReason = '';
  let usage: OpenAI.CompletionUsage | null | undefined = null;
  const tokenIds: number[] = [];
  for await (const chunk of data) {
    const choice: (OpenAI.ChatCompletionChunk.Choice & { token_ids?: number[] }) | undefined = chunk.choices[0];
    if (ttftMs === 0 && choice?.delta.content) ttftMs = performance.now() - startMs;
    text += choice?.delta.content ?? '';
    tokenIds.push(...(choice?.token_ids ?? []));
    finishReason = choice?.finish_reason ?? finishReason;
    usage = chunk.usage ?? usage;
  }
  if (finishReason === '' || usage == null) throw new Error('the stream ended early');
  return {
    requestId: response.headers.get('x-request-id') ?? '',
    ms: Math.round(performance.now() - startMs),
    ttftMs: Math.round(ttftMs),
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    completionTokens: usage.completion_tokens,
    finishReason,
    tokenIds,
    text,
  };
}
