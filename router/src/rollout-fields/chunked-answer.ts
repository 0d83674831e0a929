import { type AnswerPlan, type Choice, contentOf } from './choice.ts';
import { type RawObject, NULL, isNull, readList, readObject, toJson, writeList, writeObject } from './raw-json.ts';
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
  const chunks: RawObject[] = choices.flatMap((choice) =>
    chunksOf(choice, plan).map((each, i) => {
      const chunk: RawObject = new Map(head).set('choices', writeList([writeObject(each)]));
      const hasPrompt = i === 0 && fields.isChat && fields.returnTokenIds;
      return hasPrompt ? chunk.set('prompt_token_ids', toJson(promptIds)) : chunk;
    }),
  );
  const usage = top.get('usage');
  if (fields.includesUsage && !isNull(usage)) {
    chunks.push(new Map(head).set('choices', writeList([])).set('usage', usage!));
  }
  const last = chunks.at(-1);
  for (const [name, value] of top) {
    if (!IN_ALL.has(name) && !NOT_IN_STREAMS.has(name)) last?.set(name, value);
  }
  if (perfMetrics !== null) last?.set('perf_metrics', perfMetrics);
  return Buffer.concat([...chunks.flatMap((chunk) => [DATA, writeObject(chunk), END]), DONE]);
}

const NOT_IN_STREAMS = new Set(['choices', 'usage', 'prompt_token_ids']);
const DATA = Buffer.from('data: ');
const END = Buffer.from('\n\n');

/** The choices of its chunks: one without tokens, those with tokens, one with the end. */
function chunksOf(choice: Choice, { fields }: AnswerPlan): RawObject[] {
  const { index, rest, content, ids, echoed, promptIds, rawOutput, text } = choice;
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

  const chunks: RawObject[] = [];
  if (message !== null) chunks.push(chunk(firstDelta(message), '', NULL));
  const parts = splitText(text, choice.texts);
  for (const [from, to] of groups(content, ids.length)) {
    const logprobs = content === null ? NULL : contentOf(content.slice(from, to));
    const made = withText(parts.slice(from, to).join(''), logprobs);
    if (fields.returnTokenIds) made.set('token_ids', toJson(ids.slice(Math.max(from, echoed), to)));
    chunks.push(made);
  }
  if (fields.returnTokenIds && !fields.isChat) chunks[0]?.set('prompt_token_ids', toJson(promptIds));
  const end = chunk(message === null ? null : new Map(), '', NULL);
  for (const [name, value] of rest) end.set(name, value);
  if (rawOutput !== null) end.set('raw_output', rawOutput);
  return [...chunks, end];
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

/** @returns where each chunk's tokens begin and end */
function groups(content: Choice['content'], count: number): [number, number][] {
  const made: [number, number][] = [];
  let [from, bytes] = [0, 0];
  for (let i = 0; i < count; i++) {
    bytes += content?.[i]?.get('routing_matrix')?.length ?? 0;
    if (i + 1 - from < CHUNK_TOKENS && bytes < CHUNK_BYTES && i + 1 < count) continue;
    made.push([from, i + 1]);
    [from, bytes] = [i + 1, 0];
  }
  return made;
}
