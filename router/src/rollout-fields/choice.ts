import type { ChoiceDelta, ChoicesAnswer } from '../engines/dialects/choices.ts';
import type { EngineKind } from '../engines/engine.ts';
import { type TopTokens, Unreadable, logprobOf } from '../generation/delta.ts';
import { bufferOf } from '../kit/bytes.ts';
import type { Json } from '../kit/json-members.ts';
import { type Entry, bareEntry, entriesOf, promptEntries } from './entries.ts';
import type { RolloutFields } from './fields.ts';
import type { LayerFacts } from './layers.ts';
import { type RawObject, NULL, jsonOf, membersOf, toJson, writeList, writeObject } from './raw-json.ts';
import { RoutingRows } from './routing-rows.ts';

/** How responses of engines are changed. Plain data: it goes to a thread. */
export interface AnswerPlan {
  readonly fields: RolloutFields;
  readonly engine: EngineKind;
  readonly layers: LayerFacts | null;
  readonly logprobs: EntryRules['logprobs'];
  /** The snapshot of engines whose weights have no label yet. */
  readonly baseIdentity: string;
}

/** What a whole response, or an event of a stream, adds to a choice. */
export interface Part {
  /** Tokens that are returned: those of the prompt that are echoed, then the sampled ones. */
  readonly ids: readonly number[];
  /** How many of `ids` are of the prompt. */
  readonly echoed: number;
  /** For each of `ids`; null: no logprobs are wanted, or returned. */
  readonly content: readonly RawObject[] | null;
  /** The text of each of `ids`; null: not known. */
  readonly texts: readonly (string | null)[];
  /** Of a completion, with the echoed prompt; of a chat its content. */
  readonly text: string;
}

/** A choice as far as it has come: all at once, or with each event of a stream. */
export class Choice {
  promptIds: readonly number[] = [];
  readonly #plan: AnswerPlan;
  /** Kept for `raw_output` alone. */
  readonly #parts: Part[] = [];
  /** Tokens so far, and characters of their text. */
  #tokens = 0;
  #offset = 0;
  /** Parsers took something out of the content. */
  #isParsed = false;
  #isWhole = false;

  constructor(plan: AnswerPlan) {
    this.#plan = plan;
  }

  /** @param known ids of the prompt that earlier events had; null: the response is whole */
  add(delta: ChoiceDelta, answer: ChoicesAnswer, known: readonly number[] | null): Part {
    const { fields } = this.#plan;
    this.#isWhole = known === null;
    const sampled = delta.ids() ?? (known === null ? null : []);
    const promptIds = delta.promptIds() ?? (this.promptIds.length > 0 ? this.promptIds : known);
    if (promptIds === null || sampled === null) {
      throw new Unreadable('The engine returned no token ids: vLLM 0.10.2 or SGLang 0.5.19 is needed, or newer.');
    }
    this.promptIds = promptIds;
    const echoed = Math.min(fields.echo ?? 0, promptIds.length);
    const outputIds = fields.isPromptOnly ? [] : sampled;
    const ids = [...promptIds.slice(promptIds.length - echoed), ...outputIds];
    const prompt = echoed === 0 ? [] : this.#promptEntries(delta, answer, sampled.length);
    const output = this.#outputEntries(delta, sampled.length, known === null)?.slice(0, outputIds.length) ?? null;
    const entries = [...prompt.slice(promptIds.length - echoed), ...(output ?? outputIds.map(() => null))];
    const texts = entries.map((entry) => entry?.text ?? null);
    const hasContent = fields.hasContent && (output !== null || fields.isPromptOnly);
    const rows = fields.matrix === null ? null : rowsOf(delta, answer, this.#plan, promptIds.length + sampled.length);
    const content = hasContent ? this.#finished(entries, ids, echoed, rows, delta) : null;
    const said = delta.said;
    const part: Part = {
      ids,
      echoed,
      content,
      texts,
      text:
        said === null
          ? textOf(delta.text() ?? '', this.#plan, texts, echoed, prompt)
          : (said.get('content')?.text() ?? ''),
    };
    this.#isParsed ||= said !== null && PARSED.some((name) => said.get(name) !== null);
    this.#tokens += ids.length;
    if (fields.rawOutput) this.#parts.push(part);
    return part;
  }

  /** What was sampled, beside what parsers made of it. */
  rawOutput(): Buffer {
    const { fields } = this.#plan;
    const { promptText } = fields;
    const parts = this.#parts;
    const ids = parts.flatMap((part) => part.ids);
    const content = parts.flatMap((part) => part.content ?? []);
    const hasContent = parts.some((part) => part.content !== null);
    const texts = parts.flatMap((part) => part.texts.slice(part.echoed));
    // What parsers took out of the content is in the tokens still.
    const isRead = hasContent && texts.every((text) => text !== null);
    const completion = this.#isParsed && isRead ? texts : parts.map(({ text }) => text);
    const members: RawObject = new Map([
      ['completion', toJson(completion.join(''))],
      ['prompt_fragments', promptText === null ? toJson(this.promptIds) : writeList([bufferOf(promptText)])],
      ['prompt_token_ids', toJson(this.promptIds)],
      ['completion_token_ids', toJson(ids)],
    ]);
    if (hasContent || (fields.hasContent && !this.#isWhole))
      members.set('completion_logprobs', contentOf(content, ['routing_matrix']));
    return writeObject(members);
  }

  /** Entries of the sampled tokens; null: the engine returned none. */
  #outputEntries(delta: ChoiceDelta, count: number, isWhole: boolean): Entry[] | null {
    const { fields } = this.#plan;
    if (!isWhole && !fields.hasContent) return null;
    const entries = entriesOf(delta.json.get('logprobs'), fields.topLogprobs);
    if (entries === null || (entries.length === 0 && !isWhole)) return null;
    // Those of a prompt that the engine echoes are in front of the others.
    const own = isWhole ? entries.slice(Math.max(0, entries.length - count)) : entries;
    if (own.length === count || (isWhole && fields.isPromptOnly)) return own;
    throw new Unreadable(`The engine returned ${own.length} logprobs for ${count} tokens.`);
  }

  /** Entries of all tokens of the prompt. @param sampled how many tokens come after them */
  #promptEntries(delta: ChoiceDelta, { promptScores }: ChoicesAnswer, sampled: number): readonly Entry[] {
    const { fields, engine } = this.#plan;
    const ids = this.promptIds;
    if (!fields.isChat) {
      const entries = entriesOf(delta.json.get('logprobs'), fields.topLogprobs);
      // Lists of the sampled tokens alone may be as long as the prompt.
      if (entries !== null && entries.length >= ids.length + sampled) return entries.slice(0, ids.length);
      throw new Unreadable('The engine returned no logprobs of the prompt, which echo needs.');
    }
    // Of tokens in SGLang's chats only the ids are known.
    if (engine === 'sglang') return ids.map(bareEntry);
    if (promptScores === null) throw new Unreadable('The engine returned no prompt_logprobs, which echo needs.');
    return promptEntries(promptScores.items(), ids, fields.topLogprobs);
  }

  /** Entries with what is added to them. */
  #finished(
    entries: readonly (Entry | null)[],
    ids: readonly number[],
    echoed: number,
    rows: RoutingRows | null,
    delta: ChoiceDelta,
  ): RawObject[] {
    const { fields, logprobs } = this.#plan;
    const rules: EntryRules = { logprobs, isFullDistribution: fields.isFullDistribution };
    // In a stream they may be those of all tokens so far.
    const hasIds = this.#isWhole && fields.topLogprobs > 0;
    const alternatives = hasIds ? (delta.info?.top() ?? null) : null;
    const first = this.promptIds.length - echoed + this.#tokens;
    return entries.map((entry, i) => {
      const facts = {
        id: ids[i]!,
        position: first + i,
        isSampled: i >= echoed,
        offset: this.#offset,
        matrix: rows === null ? null : rows.matrixOf(first + i),
        alternatives: alternatives?.[i - echoed] ?? null,
      };
      this.#offset += lengthOf(entry?.text ?? '');
      return finishedEntry(entry ?? bareEntry(), facts, rules);
    });
  }
}

/** Members of a message that parsers fill. */
const PARSED = ['tool_calls', 'reasoning_content', 'reasoning'];

function rowsOf(
  delta: ChoiceDelta,
  answer: ChoicesAnswer,
  { fields, layers, engine }: AnswerPlan,
  tokens: number,
): RoutingRows {
  const shared = answer.experts();
  const experts = delta.experts() ?? (answer.deltas.length === 1 ? shared : null);
  if (experts !== null) return new RoutingRows(experts as string, tokens, layers!, fields.matrix!);
  if (shared !== null) {
    throw new Unreadable('SGLang returns the routed experts of the first choice only: send a request for each sample.');
  }
  const needed = engine === 'sglang' ? 'SGLang 0.5.10 or newer' : 'vLLM 0.26 or newer';
  throw new Unreadable(`The engine returned no routed experts: start ${needed} with --enable-return-routed-experts.`);
}

/** In characters, as Python counts them. */
const lengthOf = (text: string): number => [...text].length;

/** The text of a completion begins with that of the prompt's tokens that are echoed. */
function textOf(
  text: string,
  { fields, engine }: AnswerPlan,
  texts: readonly (string | null)[],
  echoed: number,
  promptEntries: readonly Entry[],
): string {
  const { echo, promptText, isPromptOnly } = fields;
  if (echo === null) return text;
  const given = promptText === null ? null : jsonOf(bufferOf(promptText)).text();
  const prompt = given ?? texts.slice(0, echoed).join('');
  if (isPromptOnly) return prompt;
  const output = texts.slice(echoed).join('');
  const all = given ?? promptEntries.map((entry) => entry.text).join('');
  // vLLM echoes no text where it returns ids (0.33), older releases do; SGLang does, without special tokens.
  if (engine !== 'sglang' && (output.startsWith(text) || !text.startsWith(all))) return prompt + text;
  if (text.startsWith(all)) return prompt + text.slice(all.length);
  return echo === Infinity ? text : prompt + output;
}

/** The `logprobs` of a choice. */
export function logprobsOf(own: Json | null, { content, echoed }: Part, { hasLists }: RolloutFields): Buffer {
  if (content === null) return NULL;
  const lists = hasLists ? (echoed === 0 ? membersOf(own) : listsOf(content)) : [];
  return writeObject([...lists, ['content', entryList(content)]]);
}

/** @param without members that are left out of its entries */
export const contentOf = (content: readonly RawObject[], without: readonly string[] = []): Buffer =>
  writeObject([['content', entryList(content, without)]]);

const entryList = (content: readonly RawObject[], without: readonly string[] = []): Buffer =>
  writeList(content.map((members) => writeObject([...members].filter(([name]) => !without.includes(name)))));

/** The lists of OpenAI's completions. */
function listsOf(content: readonly RawObject[]): RawObject {
  const column = (name: string): Buffer => writeList(content.map((entry) => entry.get(name) ?? NULL));
  const rows = content.map((entry) => {
    const alternatives = jsonOf(entry.get('top_logprobs') ?? NULL).items();
    const named = [entry, ...alternatives.map(membersOf)].map(
      (each) => [jsonOf(each.get('token') ?? NULL).text() ?? '', each.get('logprob') ?? NULL] as const,
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

/** What is added to entries. */
interface EntryRules {
  /** Which of the two kinds of logprobs the engines return. */
  readonly logprobs: 'raw' | 'processed' | 'unknown';
  /** Both kinds are equal. */
  readonly isFullDistribution: boolean;
}

/** What is known of one token, beside its entry. */
interface TokenFacts {
  readonly id: number;
  /** Its place in the sequence. */
  readonly position: number;
  /** It was sampled; else it is of the prompt. */
  readonly isSampled: boolean;
  /** Where its text begins in the text that is returned, in characters. */
  readonly offset: number;
  /** null: none is wanted. */
  readonly matrix: string | null;
  /** The likeliest tokens with their ids, in the order of the entry's; null: their ids are not known. */
  readonly alternatives: TopTokens | null;
}

/** The entry as the client gets it. */
function finishedEntry({ members }: Entry, facts: TokenFacts, rules: EntryRules): RawObject {
  const made: RawObject = new Map(members);
  const own = made.get('logprob') ?? NULL;
  const logprob = facts.isSampled && Number.isNaN(logprobOf(jsonOf(own).number())) ? NULL : own;
  if (logprob !== own) made.set('logprob', logprob);
  const isKnown = rules.isFullDistribution || !facts.isSampled;
  made.set('token_id', toJson(facts.id));
  // Before the first token there is nothing that could give it a probability; clients take no null here.
  if (logprob.equals(NULL) && facts.position === 0) made.set('logprob', ZERO);
  if (rules.logprobs === 'processed' && !isKnown) made.set('logprob', NULL);
  const hasSampling = facts.isSampled && (rules.isFullDistribution || rules.logprobs === 'processed');
  made.set('sampling_logprob', hasSampling ? logprob : NULL);
  made.set('text_offset', toJson(facts.offset));
  if (facts.alternatives !== null) made.set('top_logprobs', withIds(made.get('top_logprobs'), facts.alternatives));
  if (facts.matrix !== null) made.set('routing_matrix', toJson(facts.matrix));
  return made;
}

function withIds(top: Buffer = NULL, alternatives: TopTokens): Buffer {
  const items = jsonOf(top).items();
  return writeList(
    items.map((json, i) => {
      const id = alternatives[i]?.[1] ?? null;
      return id === null ? json.raw() : writeObject(membersOf(json).set('token_id', toJson(id)));
    }),
  );
}

const ZERO = Buffer.from('0');
