import type { ChoiceDelta } from '../engines/dialects/choices.ts';
import { identityOf } from '../engines/weight-label.ts';
import type { VersionSpan } from '../generation/delta.ts';
import type { Json } from '../kit/json-members.ts';
import { type AnswerPlan, type Part, contentOf } from './choice.ts';
import { type RawObject, NULL, membersOf, toJson, writeList, writeObject } from './raw-json.ts';
import { splitText } from './split-text.ts';
import { type PerfMetrics, type WholeChoice, readAnswer } from './whole-answer.ts';

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
  const { top, choices, promptIds, json } = answer;
  const { fields } = plan;
  top.set('object', toJson(fields.isChat ? 'chat.completion.chunk' : 'text_completion'));
  const head: RawObject = new Map([...top].filter(([name]) => IN_ALL.has(name)));
  const model = json.get('model')?.text() ?? null;
  const chunks: RawObject[] = choices.flatMap((choice) => {
    const spans = spansOf(choice.delta, choices.length === 1);
    return chunksOf(choice, spans, plan).map(({ made: each, version }, i) => {
      const chunk: RawObject = new Map(head).set('choices', writeList([writeObject(each)]));
      const label = labelOf(model, spans, version, plan.baseIdentity);
      if (label !== null) chunk.set('model', toJson(label));
      const hasPrompt = i === 0 && fields.isChat && fields.returnTokenIds;
      return hasPrompt ? chunk.set('prompt_token_ids', toJson(promptIds)) : chunk;
    });
  });
  const usage = json.get('usage');
  if (fields.includesUsage && usage !== null) {
    chunks.push(new Map(head).set('choices', writeList([])).set('usage', usage.raw()));
  }
  const last = chunks.at(-1);
  if (fields.hasUsageInLast && usage !== null) last?.set('usage', usage.raw());
  for (const [name, value] of top) {
    if (!IN_ALL.has(name) && !NOT_IN_STREAMS.has(name)) last?.set(name, value);
  }
  return Buffer.concat([...chunks.flatMap((chunk) => [DATA, writeObject(chunk), END]), DONE]);
}

const NOT_IN_STREAMS = new Set(['choices', 'usage', 'prompt_token_ids']);
const DATA = Buffer.from('data: ');
const END = Buffer.from('\n\n');

/** The choice of a chunk, and the version of the weights that sampled its tokens; null: not known, or it has none. */
interface Chunk {
  readonly made: RawObject;
  readonly version: string | null;
}

/** Which weights sampled which of its tokens; empty: the engine does not say it. */
function spansOf(delta: ChoiceDelta, isOnly: boolean): readonly VersionSpan[] {
  if (delta.hasOwnSpans) return delta.spans();
  const spans = delta.info?.spans() ?? [];
  // SGLang has those of a single choice beside it.
  return spans.length > 0 || !isOnly ? spans : delta.spans();
}

/** The choices of its chunks: one without tokens, those with tokens, one with the end. */
function chunksOf(choice: WholeChoice, spans: readonly VersionSpan[], { fields }: AnswerPlan): Chunk[] {
  const { delta: own, index, rest, part, promptIds, rawOutput } = choice;
  const { content, ids, echoed } = part;
  const message = own.said;
  rest.delete('message');
  const chunk = (delta: RawObject | null, said: string, logprobs: Buffer): RawObject => {
    const made: RawObject = new Map([['index', index]]);
    if (delta !== null) made.set('delta', writeObject(delta));
    else made.set('text', toJson(said));
    return made.set('logprobs', logprobs).set('finish_reason', NULL);
  };
  const withText = (said: string, logprobs: Buffer): RawObject =>
    chunk(message === null ? null : new Map([['content', toJson(said)]]), said, logprobs);

  const parts: Chunk[] = [];
  const first = spans[0]?.version ?? null;
  if (message !== null) parts.push({ made: chunk(firstDelta(message), '', NULL), version: first });
  const texts = splitText(part.text, part.texts);
  // A chunk has tokens of one version.
  const seams = spans.map((span) => echoed + span.from);
  for (const [from, to] of groups(content, ids.length, seams)) {
    const logprobs = content === null ? NULL : contentOf(content.slice(from, to));
    const made = withText(texts.slice(from, to).join(''), logprobs);
    if (fields.returnTokenIds) made.set('token_ids', toJson(ids.slice(Math.max(from, echoed), to)));
    const version = spans.findLast((span) => echoed + span.from <= from)?.version ?? first;
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
  spans: readonly VersionSpan[],
  version: string | null,
  baseIdentity: string,
): string | null {
  const last = spans.length === 0 ? null : identityOf(spans.at(-1)!.version, baseIdentity);
  if (model === null || version === null || last === null || !model.endsWith(`@${last}`)) return null;
  return model.slice(0, -last.length) + identityOf(version, baseIdentity);
}

/** The beginning of a message, without its content. Calls of tools have numbers in streams. */
function firstDelta(message: Json): RawObject {
  const delta: RawObject = membersOf(message).set('content', toJson(''));
  const calls = message.get('tool_calls')?.items();
  if (calls === undefined) return delta;
  const numbered = calls.map((call, i) => writeObject([['index', toJson(i)], ...membersOf(call)]));
  return delta.set('tool_calls', writeList(numbered));
}

/** @param seams tokens with which a chunk begins @returns where each chunk's tokens begin and end */
function groups(content: Part['content'], count: number, seams: readonly number[]): [number, number][] {
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
