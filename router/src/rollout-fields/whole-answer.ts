import { type AnswerPlan, type Choice, type Shared, contentOf, readChoice } from './choice.ts';
import {
  type RawObject,
  NULL,
  isNull,
  readIds,
  readList,
  readObject,
  readText,
  toJson,
  writeList,
  writeObject,
} from './raw-json.ts';

/** What the router knows of a request's course, by the names of Fireworks. */
export type PerfMetrics = Readonly<Record<string, number | string>>;

/** A whole response of an engine, read. */
export interface Answer {
  /** Its members in their order, without what only the router asked for. `choices` are the engine's. */
  readonly top: RawObject;
  readonly choices: readonly Choice[];
  readonly promptIds: readonly number[] | null;
  readonly perfMetrics: Buffer | null;
}

/** @returns null: it is no response with choices, but an error, or something unknown */
export function readAnswer(body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): Answer | null {
  const top = readObject(body);
  const choices = readList(top?.get('choices'));
  if (top === null || choices === null) return null;
  const { fields } = plan;
  const extension = readObject(top.get('sglext') ?? NULL);
  const shared: Shared = {
    promptIds: readIds(top.get('prompt_token_ids')),
    promptLogprobs: top.get('prompt_logprobs'),
    experts: extension?.get('routed_experts'),
    spans: choices.length === 1 ? readObject(top.get('metadata') ?? NULL)?.get('weight_versions') : undefined,
    choices: choices.length,
  };
  const read = changesChoices(plan) ? choices.map((json) => readChoice(json, shared, plan)!) : [];
  const queued = perf === null ? {} : queuedSecs(choices);
  const perfMetrics = perf === null ? null : toJson({ ...countsOf(top.get('usage')), ...queued, ...perf });
  if (fields.matrix !== null && !fields.asked.includes('return_routed_experts')) {
    extension?.delete('routed_experts');
    if (extension?.size === 0) top.delete('sglext');
    else if (extension !== null) top.set('sglext', writeObject(extension));
  }
  if (!fields.asked.includes('prompt_logprobs') && fields.echo !== null) top.delete('prompt_logprobs');
  if (!fields.returnTokenIds) top.delete('prompt_token_ids');
  return { top, choices: read, promptIds: read[0]?.promptIds ?? null, perfMetrics };
}

/** The members that clients know from vLLM's responses are in SGLang's chats elsewhere. */
const changesChoices = ({ fields, dialect }: AnswerPlan): boolean =>
  fields.rawOutput ||
  fields.hasContent ||
  fields.echo !== null ||
  (fields.returnTokenIds && fields.isChat && dialect === 'sglang');

/** SGLang with --enable-metrics (0.5.19) says it in `meta_info` of chats. */
function queuedSecs(choices: readonly Buffer[]): PerfMetrics {
  const info = readObject(readObject(choices[0] ?? NULL)?.get('meta_info') ?? NULL);
  const json = info?.get('queue_time');
  const secs = isNull(json) ? NaN : Number(json);
  return Number.isFinite(secs) && secs >= 0 ? { 'prefill-queue-duration': secs } : {};
}

/** The names of Fireworks for what an engine says in `usage`. */
export function countsOf(usage: Buffer | undefined): PerfMetrics {
  const members = readObject(usage ?? NULL);
  const counts: Record<string, number> = {};
  const prompt = members?.get('prompt_tokens');
  const cached = readObject(members?.get('prompt_tokens_details') ?? NULL)?.get('cached_tokens');
  if (!isNull(prompt)) counts['prompt-tokens'] = Number(prompt);
  if (!isNull(cached)) counts['cached-prompt-tokens'] = Number(cached);
  return counts;
}

/** A whole response as the client gets it. */
export function wholeAnswer(body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): Buffer {
  const answer = readAnswer(body, plan, perf);
  if (answer === null) return body;
  const { top, choices, promptIds, perfMetrics } = answer;
  const { fields } = plan;
  if (choices.length > 0) top.set('choices', writeList(choices.map((choice) => writeChoice(choice, plan))));
  if (fields.returnTokenIds && fields.isChat && promptIds !== null) top.set('prompt_token_ids', toJson(promptIds));
  if (perfMetrics !== null) top.set('perf_metrics', perfMetrics);
  return writeObject(top);
}

function writeChoice(choice: Choice, { fields }: AnswerPlan): Buffer {
  const { index, rest, text, rawOutput, ids, echoed, promptIds } = choice;
  const made: RawObject = new Map([['index', index]]);
  if (!fields.isChat) made.set('text', toJson(text));
  for (const [name, value] of rest) made.set(name, value);
  made.set('logprobs', logprobsOf(choice));
  if (fields.returnTokenIds) {
    made.set('token_ids', toJson(ids.slice(echoed)));
    if (!fields.isChat) made.set('prompt_token_ids', toJson(promptIds));
  }
  if (rawOutput !== null) made.set('raw_output', rawOutput);
  return writeObject(made);
}

function logprobsOf({ content, lists, echoed }: Choice): Buffer {
  if (content === null) return NULL;
  if (lists === null) return contentOf(content);
  const all = echoed === 0 ? lists : listsOf(content);
  return writeObject([...all, ['content', readObject(contentOf(content))!.get('content')!]]);
}

/** The lists of OpenAI's completions. */
export function listsOf(content: readonly RawObject[]): RawObject {
  const column = (name: string): Buffer => writeList(content.map((entry) => entry.get(name) ?? NULL));
  const rows = content.map((entry) => {
    const alternatives = readList(entry.get('top_logprobs')) ?? [];
    const named = [entry, ...alternatives.map((json) => readObject(json)!)].map(
      (each) => [readText(each.get('token')) ?? '', each.get('logprob') ?? NULL] as const,
    );
    return writeObject(new Map(named));
  });
  return new Map([
    ['text_offset', column('text_offset')],
    ['token_logprobs', column('logprob')],
    ['tokens', column('token')],
    ['top_logprobs', writeList(rows)],
  ]);
}
