import { type AnswerPlan, type Choice, contentOf } from './choice.ts';
import {
  type RawObject,
  NULL,
  isNull,
  readList,
  readObject,
  readText,
  toJson,
  writeList,
  writeObject,
} from './raw-json.ts';
import { identityOf } from '../engines/weight-label.ts';
import { splitText } from './split-text.ts';
import { type PerfMetrics, readAnswer } from './whole-answer.ts';

/** Members of a response that each chunk of it has. */
const IN_ALL = new Set(['id', 'object', 'created', 'model']);
/** A chunk has at most so many tokens, and ends after so many bytes of them: clients limit the length of a line. */
const CHUNK_TOKENS = 16;
const CHUNK_BYTES = 32_768;

const DONE = Buffer.from('data: [DONE]\n\n');

/** A whole response as the stream that the client asked for. @returns null: it is no response with choices */
export function chunkedAnswer(body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): Buffer | null {
  const answer = readAnswer(body, plan, perf);
  if (answer === null) return null;
  const { top, choices, promptIds, perfMetrics } = answer;
  const { fields } = plan;
  top.set('object', toJson(fields.isChat ? 'chat.completion.chunk' : 'text_completion'));
  const head: RawObject = new Map([...top].filter(([name]) => IN_ALL.has(name)));
  const model = readText(top.get('model'));
  const chunks: RawObject[] = choices.flatMap((choice) =>
    chunksOf(choice, plan).map(({ made: each, version }, i) => {
      const chunk: RawObject = new Map(head).set('choices', writeList([writeObject(each)]));
      const label = labelOf(model, choice.spans, version, plan.baseIdentity);
      if (label !== null) chunk.set('model', toJson(label));
      const hasPrompt = i === 0 && fields.isChat && fields.returnTokenIds;
      return hasPrompt ? chunk.set('prompt_token_ids', toJson(promptIds)) : chunk;
    }),
  );
  const usage = top.get('usage');
  if (fields.includesUsage && !isNull(usage)) {
    chunks.push(new Map(head).set('choices', writeList([])).set('usage', usage!));
  }
  const last = chunks.at(-1);
  if (fields.hasUsageInLast && !isNull(usage)) last?.set('usage', usage!);
  for (const [name, value] of top) {
    if (!IN_ALL.has(name) && !NOT_IN_STREAMS.has(name)) last?.set(name, value);
  }
  if (perfMetrics !== null) last?.set('perf_metrics', perfMetrics);
  return Buffer.concat([...chunks.flatMap((chunk) => [DATA, writeObject(chunk), END]), DONE]);
}

const NOT_IN_STREAMS = new Set(['choices', 'usage', 'prompt_token_ids']);
const DATA = Buffer.from('data: ');
const END = Buffer.from('\n\n');

/** The choice of a chunk, and the version of the weights that sampled its tokens; null: not known, or it has none. */
interface Part {
  readonly made: RawObject;
  readonly version: string | null;
}

/** The choices of its chunks: one without tokens, those with tokens, one with the end. */
function chunksOf(choice: Choice, { fields }: AnswerPlan): Part[] {
  const { index, rest, content, ids, echoed, promptIds, rawOutput, text, spans } = choice;
  const message = readObject(rest.get('message') ?? NULL);
  rest.delete('message');
  const chunk = (delta: RawObject | null, said: string, logprobs: Buffer): RawObject => {
    const made: RawObject = new Map([['index', index]]);
    if (delta !== null) made.set('delta', writeObject(delta));
    else made.set('text', toJson(said));
    return made.set('logprobs', logprobs).set('finish_reason', NULL);
  };
  const withText = (said: string, logprobs: Buffer): RawObject =>
    chunk(message === null ? null : new Map([['content', toJson(said)]]), said, logprobs);

  const parts: Part[] = [];
  const first = spans?.[0]?.version ?? null;
  if (message !== null) parts.push({ made: chunk(firstDelta(message), '', NULL), version: first });
  const texts = splitText(text, choice.texts);
  // A chunk has tokens of one version.
  const seams = (spans ?? []).map((span) => echoed + span.from);
  for (const [from, to] of groups(content, ids.length, seams)) {
    const logprobs = content === null ? NULL : contentOf(content.slice(from, to));
    const made = withText(texts.slice(from, to).join(''), logprobs);
    if (fields.returnTokenIds) made.set('token_ids', toJson(ids.slice(Math.max(from, echoed), to)));
    const version = spans?.findLast((span) => echoed + span.from <= from)?.version ?? first;
    parts.push({ made, version });
  }
  if (fields.returnTokenIds && !fields.isChat) parts[0]?.made.set('prompt_token_ids', toJson(promptIds));
  const end = chunk(message === null ? null : new Map(), '', NULL);
  for (const [name, value] of rest) end.set(name, value);
  if (rawOutput !== null) end.set('raw_output', rawOutput);
  return [...parts, { made: end, version: null }];
}

/**
 * `NAME@SNAPSHOT` for a part: the whole response has the snapshot of its end. @returns null: the response names no snapshot, or engines have
 * other names for their weights
 */
function labelOf(
  model: string | null,
  spans: Choice['spans'],
  version: string | null,
  baseIdentity: string,
): string | null {
  const last = spans === null || spans.length === 0 ? null : identityOf(spans.at(-1)!.version, baseIdentity);
  if (model === null || version === null || last === null || !model.endsWith(`@${last}`)) return null;
  return model.slice(0, -last.length) + identityOf(version, baseIdentity);
}

/** The beginning of a message, without its content. Calls of tools have numbers in streams. */
function firstDelta(message: RawObject): RawObject {
  const delta: RawObject = new Map(message).set('content', toJson(''));
  const calls = readList(delta.get('tool_calls'));
  if (calls !== null) {
    const numbered = calls.map((json, i) => writeObject([['index', toJson(i)], ...readObject(json)!]));
    delta.set('tool_calls', writeList(numbered));
  }
  return delta;
}

/** @param seams tokens with which a chunk begins @returns where each chunk's tokens begin and end */
function groups(content: Choice['content'], count: number, seams: readonly number[]): [number, number][] {
  const made: [number, number][] = [];
  let [from, bytes] = [0, 0];
  for (let i = 0; i < count; i++) {
    bytes += content?.[i]?.get('routing_matrix')?.length ?? 0;
    const isFull = i + 1 - from >= CHUNK_TOKENS || bytes >= CHUNK_BYTES;
    if (!isFull && i + 1 < count && !seams.includes(i + 1)) continue;
    made.push([from, i + 1]);
    [from, bytes] = [i + 1, 0];
  }
  return made;
}
