import { type VersionSpan, readSpans } from '../generation/delta.ts';
import { bufferOf } from '../kit/bytes.ts';
import { type Dialect } from './engine-body.ts';
import { type Entry, bareEntry, chatEntries, listedEntries, promptEntries } from './entries.ts';
import type { RolloutFields } from './fields.ts';
import { type EntryRules, type TokenFacts, finishedEntry } from './finish-entries.ts';
import type { LayerFacts } from './layers.ts';
import { NotReturned, RoutingRows } from './routing-rows.ts';
import {
  type RawObject,
  isNull,
  readIds,
  readList,
  readObject,
  readText,
  toJson,
  writeList,
  writeObject,
} from './raw-json.ts';

/** How responses of engines are changed. Plain data: it goes to a thread. */
export interface AnswerPlan {
  readonly fields: RolloutFields;
  readonly dialect: Dialect;
  readonly layers: LayerFacts | null;
  readonly logprobs: EntryRules['logprobs'];
  /** The snapshot of engines whose weights have no label yet. */
  readonly baseIdentity: string;
}

/** A choice of a whole response, read. */
export interface Choice {
  readonly index: Buffer;
  /** What stays of it, in its order: all members that none of the fields is about. */
  readonly rest: RawObject;
  /** Of a completion, with the echoed prompt; of a chat its content. */
  readonly text: string;
  /** Tokens that are returned: those of the prompt that are echoed, then the sampled ones. */
  readonly ids: readonly number[];
  readonly promptIds: readonly number[];
  /** How many of `ids` are of the prompt. */
  readonly echoed: number;
  /** For each of `ids`; null: no logprobs are wanted. */
  readonly content: readonly RawObject[] | null;
  /** The logprobs of a completion as the engine writes them; null: not wanted. */
  readonly lists: RawObject | null;
  /** The text of each of `ids`; null: not known. */
  readonly texts: readonly (string | null)[];
  readonly rawOutput: Buffer | null;
  /** Which weights sampled which of its tokens; null: the engine does not say it. */
  readonly spans: readonly VersionSpan[] | null;
}

/** What is read into a `Choice`, and does not stay as it is. */
const READ = ['index', 'text', 'logprobs', 'token_ids', 'response_token_ids', 'prompt_token_ids', 'routed_experts'];

/** @param shared what the response says of all of its choices @returns null: it is no choice */
export function readChoice(json: Buffer, shared: Shared, plan: AnswerPlan): Choice | null {
  const members = readObject(json);
  if (members === null) return null;
  const { fields } = plan;
  const message = readObject(members.get('message') ?? NOTHING);
  const info = readObject(members.get('meta_info') ?? NOTHING);
  const promptIds = readIds(members.get('prompt_token_ids')) ?? shared.promptIds;
  const sampled = readIds(members.get('token_ids')) ?? readIds(members.get('response_token_ids'));
  if (promptIds === null || sampled === null) {
    throw new NotReturned('The engine returned no token ids: vLLM 0.10.2 or SGLang 0.5.19 is needed, or newer.');
  }
  const outputIds = fields.isPromptOnly ? [] : sampled;
  const echoed = Math.min(fields.echo ?? 0, promptIds.length);
  const firstEchoed = promptIds.length - echoed;
  const output = entriesOf(members, plan);
  const prompt = echoed === 0 ? [] : promptOf(members, shared, plan, promptIds);
  // With an echo, those of the prompt are in front of the others.
  const own =
    output === null
      ? null
      : output.slice(output.length - sampled.length, output.length - sampled.length + outputIds.length);
  if (own !== null && own.length !== outputIds.length) {
    throw new NotReturned(`The engine returned ${own.length} logprobs for ${outputIds.length} tokens.`);
  }
  const entries = [...prompt.slice(firstEchoed), ...(own ?? outputIds.map(bareEntry))];
  const ids = [...promptIds.slice(firstEchoed), ...outputIds];
  const texts = entries.map(({ text }) => text);
  const wantsContent = fields.hasContent && (own !== null || fields.isPromptOnly);
  const rows = rowsOf(members, info, shared, plan, promptIds.length + sampled.length);
  const alternatives = fields.topLogprobs === 0 ? null : alternativesOf(info);
  const content = wantsContent
    ? finished(entries, ids, plan, (i) => ({
        position: firstEchoed + i,
        isSampled: i >= echoed,
        matrix: rows === null ? null : rows.matrixOf(firstEchoed + i),
        alternatives: i < echoed ? null : (alternatives?.[i - echoed] ?? null),
      }))
    : null;
  const joinedPrompt = prompt.map((entry) => entry.text).join('');
  const text =
    message === null
      ? textOf(members, plan, texts, { echoed, joinedPrompt })
      : (readText(message.get('content')) ?? '');
  const index = members.get('index') ?? toJson(0);
  const logprobs = readObject(members.get('logprobs') ?? NOTHING);
  for (const name of READ) if (name !== 'routed_experts' || fields.matrix !== null) members.delete(name);
  if (!fields.asked.includes('prompt_logprobs')) members.delete('prompt_logprobs');
  if (!fields.asked.includes('return_meta_info')) members.delete('meta_info');
  const spans = members.get('weight_versions') ?? info?.get('weight_versions') ?? shared.spans;
  if (!fields.asked.includes('return_weight_versions')) members.delete('weight_versions');
  return {
    index,
    rest: members,
    lists: fields.hasLists ? logprobs : null,
    text,
    ids,
    promptIds,
    echoed,
    content,
    texts,
    spans: isNull(spans) ? null : readSpans(JSON.parse(spans!.toString())),
    rawOutput: fields.rawOutput ? rawOutput(message, text, { promptIds, ids, content, texts, echoed }, plan) : null,
  };
}

/** What a response says once, of all choices. */
export interface Shared {
  readonly promptIds: readonly number[] | null;
  /** vLLM, of a chat: see `promptEntries`. */
  readonly promptLogprobs: Buffer | undefined;
  /** SGLang: of the first choice only. */
  readonly experts: Buffer | undefined;
  /** SGLang, of a single choice: see `Choice.spans`. */
  readonly spans: Buffer | undefined;
  readonly choices: number;
}

function entriesOf(members: RawObject, { fields }: AnswerPlan): Entry[] | null {
  const logprobs = readObject(members.get('logprobs') ?? NOTHING);
  return chatEntries(logprobs) ?? listedEntries(logprobs, fields.topLogprobs);
}

/** Entries of the tokens of a prompt: in completions they are before those of the output. */
function promptOf(
  members: RawObject,
  { promptLogprobs }: Shared,
  plan: AnswerPlan,
  ids: readonly number[],
): readonly Entry[] {
  const { fields, dialect } = plan;
  if (!fields.isChat) {
    const entries = entriesOf(members, plan);
    if (entries !== null && entries.length >= ids.length) return entries.slice(0, ids.length);
    throw new NotReturned('The engine returned no logprobs of the prompt, which echo needs.');
  }
  // Of tokens in SGLang's chats only the ids are known.
  if (dialect === 'sglang') return ids.map(bareEntry);
  const rows = readList(promptLogprobs);
  if (rows === null) throw new NotReturned('The engine returned no prompt_logprobs, which echo needs.');
  return promptEntries(rows, ids, fields.topLogprobs);
}

function rowsOf(
  members: RawObject,
  info: RawObject | null,
  { experts, choices }: Shared,
  { fields, layers, dialect }: AnswerPlan,
  tokens: number,
): RoutingRows | null {
  if (fields.matrix === null) return null;
  const own = [members.get('routed_experts'), info?.get('routed_experts')].find((each) => !isNull(each));
  const json = own ?? (choices === 1 ? experts : undefined);
  if (isNull(json)) {
    if (!isNull(experts)) {
      throw new NotReturned(
        'SGLang returns the routed experts of the first choice only: send a request for each sample.',
      );
    }
    const flag = dialect === 'vllm' ? 'vLLM 0.26 or newer' : 'SGLang 0.5.10 or newer';
    throw new NotReturned(`The engine returned no routed experts: start ${flag} with --enable-return-routed-experts.`);
  }
  return new RoutingRows(json!.toString('latin1', 1, json!.length - 1), tokens, layers!, fields.matrix);
}

function alternativesOf(info: RawObject | null): TokenFacts['alternatives'][] | null {
  const json = info?.get('output_top_logprobs');
  return isNull(json) ? null : (JSON.parse(json!.toString()) as TokenFacts['alternatives'][]);
}

/** Entries with what is added to them. */
export function finished(
  entries: readonly Entry[],
  ids: readonly number[],
  { fields, logprobs }: AnswerPlan,
  factsOf: (i: number) => Omit<TokenFacts, 'id' | 'offset'>,
  firstOffset = 0,
): RawObject[] {
  const rules: EntryRules = { logprobs, isFullDistribution: fields.isFullDistribution };
  let offset = firstOffset;
  return entries.map((entry, i) => {
    const made = finishedEntry(entry, { ...factsOf(i), id: ids[i]!, offset }, rules);
    offset += lengthOf(entry.text);
    return made;
  });
}

/** In characters, as Python counts them. */
export const lengthOf = (text: string | null): number => (text === null ? 0 : [...text].length);

/** The text of a completion begins with that of the prompt's tokens that are echoed. */
function textOf(
  members: RawObject,
  { fields, dialect }: AnswerPlan,
  texts: readonly (string | null)[],
  { echoed, joinedPrompt }: { readonly echoed: number; readonly joinedPrompt: string },
): string {
  const text = readText(members.get('text')) ?? '';
  const { echo, promptText, isPromptOnly } = fields;
  if (echo === null) return text;
  const given = promptText === null ? null : readText(bufferOf(promptText));
  const prompt = given ?? joined(texts.slice(0, echoed));
  if (isPromptOnly) return prompt;
  const output = joined(texts.slice(echoed));
  const all = given ?? joinedPrompt;
  // vLLM echoes no text where it returns ids (0.33), older releases do; SGLang does, without special tokens.
  if (dialect === 'vllm' && (output.startsWith(text) || !text.startsWith(all))) return prompt + text;
  if (text.startsWith(all)) return prompt + text.slice(all.length);
  return echo === Infinity ? text : prompt + output;
}

const joined = (texts: readonly (string | null)[]): string => texts.join('');

function rawOutput(
  message: RawObject | null,
  text: string,
  { promptIds, ids, content, texts, echoed }: Pick<Choice, 'promptIds' | 'ids' | 'content' | 'texts' | 'echoed'>,
  { fields }: AnswerPlan,
): Buffer {
  // What parsers took out of the content is in the tokens still.
  const isParsed = ['tool_calls', 'reasoning_content', 'reasoning'].some((name) => !isNull(message?.get(name)));
  const isRead = content !== null && texts.slice(echoed).every((each) => each !== null);
  const completion = isParsed && isRead ? joined(texts.slice(echoed)) : text;
  return rawOutputOf(completion, promptIds, ids, fields, content);
}

/** @param content of all of `ids`; null: no logprobs are wanted */
export function rawOutputOf(
  completion: string,
  promptIds: readonly number[],
  ids: readonly number[],
  { promptText }: RolloutFields,
  content: readonly RawObject[] | null,
): Buffer {
  const members: RawObject = new Map([
    ['completion', toJson(completion)],
    ['prompt_fragments', promptText === null ? toJson(promptIds) : writeList([bufferOf(promptText)])],
    ['prompt_token_ids', toJson(promptIds)],
    ['completion_token_ids', toJson(ids)],
  ]);
  if (content !== null) members.set('completion_logprobs', contentOf(content, ['routing_matrix']));
  return writeObject(members);
}

/** @param without members that are left out of its entries */
export const contentOf = (content: readonly RawObject[], without: readonly string[] = []): Buffer => {
  const entries = content.map((members) => writeObject([...members].filter(([name]) => !without.includes(name))));
  return writeObject([['content', writeList(entries)]]);
};

const NOTHING = Buffer.alloc(0);
