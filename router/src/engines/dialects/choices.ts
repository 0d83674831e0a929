import type { Answer, Delta, PromptToken, TopTokens, VersionSpan, WrittenSpan } from '../../generation/delta.ts';
import { readSpans, spansOf, textOf, versionOf, writtenSpansOf } from '../../generation/delta.ts';
import { Json } from '../../kit/json-members.ts';
import { GenerateDelta, type Indexer, errorOf, indexOf, indexerOf, stopOf } from './generate.ts';

/** Of chats and of `/inference/v1/generate`. */
interface ContentToken {
  readonly token?: string | null;
  readonly token_id?: number;
  readonly logprob: number | null;
  readonly bytes?: readonly number[] | null;
  readonly top_logprobs?: readonly ContentToken[] | null;
}

/** vLLM's `return_tokens_as_token_ids`. */
const ID = /^token_id:(\d+)$/;

/** By text, of OpenAI's completions. */
type NamedTokens = Readonly<Record<string, number | null>>;

/** A choice of OpenAI's APIs, of vLLM's (0.33) and SGLang's (0.5.23) extensions of them, and of vLLM's `/inference/v1/generate`. */
export class ChoiceDelta implements Delta {
  readonly index: number;
  readonly stop: string | number | null;
  readonly count: null = null;
  readonly failure: null = null;
  readonly text: Delta['text'];
  readonly textBytes: number | null;
  readonly endsInSpace: boolean;
  readonly json: Json;
  /** With `return_meta_info` SGLang writes what `/generate` returns; null: not returned. */
  readonly info: GenerateDelta | null;
  readonly #answer: Json;
  #givenIds: readonly number[] | null = null;
  readonly #logprobs: Json | null;
  #contentTokens: readonly ContentToken[] | null = null;

  constructor(choice: Json, answer: Json) {
    this.json = choice;
    this.#answer = answer;
    this.index = indexOf(choice) ?? 0;
    this.stop = stopOf(choice.get('stop_reason')) ?? stopOf(choice.get('matched_stop'));
    const text = textOf(choice.get('text'));
    this.text = text.text;
    this.textBytes = text.textBytes;
    this.endsInSpace = text.endsInSpace;
    this.#logprobs = choice.get('logprobs');
    const info = choice.get('meta_info');
    this.info = info === null ? null : new GenerateDelta(choice, info, this.index);
  }

  /** The same choice with the ids of its tokens, which the engine does not return with it. */
  withIds(ids: readonly number[]): ChoiceDelta {
    const made = new ChoiceDelta(this.json, this.#answer);
    made.#givenIds = ids;
    return made;
  }

  get finish(): string | null {
    return this.json.get('finish_reason')?.text() || null;
  }

  get #metadata(): Json | null {
    return this.#answer.get('metadata');
  }

  get version(): string | null {
    return versionOf(this.#metadata?.get('weight_version') ?? null);
  }

  ids(): readonly number[] | null {
    // In whole chats of SGLang they have a name of their own.
    const ids = this.json.get('token_ids') ?? this.json.get('response_token_ids');
    return this.#givenIds ?? (ids?.valueIfAny() as readonly number[] | undefined) ?? null;
  }

  idCount(): number {
    return this.#givenIds?.length ?? this.json.get('token_ids')?.count() ?? 0;
  }

  /** The ids that its logprobs name. */
  namedIds(): readonly number[] {
    return this.#content().flatMap(({ token_id: id }) => (id === undefined ? [] : [id]));
  }

  /** The text of each token as bytes, as far as its logprobs have it. */
  tokenBytes(): readonly (readonly number[] | null)[] {
    return this.#content().map(({ bytes }) => bytes ?? null);
  }

  logprobs(): readonly (number | null)[] | null {
    const content = this.#content();
    if (content !== NO_CONTENT) return content.map(({ logprob }) => logprob);
    return (this.#logprobs?.get('token_logprobs')?.valueIfAny() as readonly (number | null)[] | undefined) ?? null;
  }

  top(): readonly TopTokens[] | null {
    const content = this.#content();
    if (content !== NO_CONTENT) return content.map(({ top_logprobs: top }) => (top ?? []).map(tokenOf));
    const rows = this.#logprobs?.get('top_logprobs')?.valueIfAny() as readonly (NamedTokens | null)[] | undefined;
    return rows?.map((row) => Object.entries(row ?? {}).map(([token, logprob]) => tokenOf({ token, logprob }))) ?? null;
  }

  promptIds(): readonly number[] | null {
    const own = this.json.get('prompt_token_ids') ?? this.#answer.get('prompt_token_ids');
    const ids = own ?? this.#answer.get('sglext')?.get('input_ids') ?? null;
    return (ids?.valueIfAny() as readonly number[] | undefined) ?? null;
  }

  spans(): readonly VersionSpan[] {
    return readSpans(this.writtenSpans());
  }

  writtenSpans(): readonly WrittenSpan[] {
    return writtenSpansOf(this.json.get('weight_versions') ?? this.#metadata?.get('weight_versions') ?? null);
  }

  experts(): unknown {
    return this.json.get('routed_experts')?.valueIfAny() ?? this.info?.experts() ?? null;
  }

  /** Tokens of the choice so far: SGLang with `continuous_usage_stats`. */
  get usedTokens(): number | null {
    return this.#answer.get('usage')?.get('completion_tokens')?.number() ?? null;
  }

  get indexer(): Indexer | null {
    const own = this.json.get('indexer_topk') ?? this.info?.info.get('indexer_topk') ?? null;
    return indexerOf(own, this.info?.info ?? null);
  }

  /** The message of a whole chat, or what an event adds to it. */
  message(): Readonly<Record<string, unknown>> | null {
    return (this.json.get('message')?.valueIfAny() as Record<string, unknown> | undefined) ?? null;
  }

  delta(): Readonly<Record<string, unknown>> | null {
    return (this.json.get('delta')?.valueIfAny() as Record<string, unknown> | undefined) ?? null;
  }

  /** The message, or what an event adds to it, without decoding it; null: it is no chat. */
  get said(): Json | null {
    return this.json.get('message') ?? this.json.get('delta');
  }

  /** The event adds something to the message. */
  get hasText(): boolean {
    if ((this.textBytes ?? 0) > 0) return true;
    return Object.entries(this.delta() ?? {}).some(([name, value]) => name !== 'role' && Boolean(value));
  }

  /** The choice itself says which weights sampled it: vLLM. */
  get hasOwnSpans(): boolean {
    return this.json.get('weight_versions') !== null;
  }

  #content(): readonly ContentToken[] {
    this.#contentTokens ??= (this.#logprobs?.get('content')?.valueIfAny() ?? NO_CONTENT) as readonly ContentToken[];
    return this.#contentTokens;
  }
}

const NO_CONTENT: readonly ContentToken[] = [];

/** A response with choices, or an event of its stream. */
export class ChoicesAnswer implements Answer {
  readonly error: number | null;
  readonly deltas: readonly ChoiceDelta[];
  readonly json: Json;

  constructor(json: Json, deltas?: readonly ChoiceDelta[]) {
    this.json = json;
    this.error = errorOf(json);
    const choices = deltas === undefined && this.error === null ? json.get('choices')?.items() : null;
    this.deltas = deltas ?? (choices ?? []).map((choice) => new ChoiceDelta(choice, json));
  }

  /** It is a response of this API. */
  get hasChoices(): boolean {
    return this.json.get('choices') !== null;
  }

  /** Of all prompts of the request. */
  get promptTokens(): number | null {
    return this.json.get('usage')?.get('prompt_tokens')?.number() ?? null;
  }

  get cachedTokens(): number | null {
    return this.json.get('usage')?.get('prompt_tokens_details')?.get('cached_tokens')?.number() ?? null;
  }

  /** SGLang, at the end of a stream: all ids of each choice; null: not returned. */
  outputIds(): readonly (readonly number[])[] | null {
    return (this.json.get('sglext')?.get('output_ids')?.valueIfAny() as number[][] | undefined) ?? null;
  }

  promptIds(): readonly number[] | null {
    const ids = this.json.get('prompt_token_ids') ?? this.json.get('sglext')?.get('input_ids') ?? null;
    return (ids?.valueIfAny() as readonly number[] | undefined) ?? null;
  }

  /** The versions of SGLang's first choice; null: not returned. */
  get versions(): Pick<Delta, 'version' | 'spans'> | null {
    const metadata = this.json.get('metadata');
    if (metadata === null) return null;
    return {
      version: versionOf(metadata.get('weight_version')),
      spans: () => spansOf(metadata.get('weight_versions')),
    };
  }

  /** SGLang, of a single choice. */
  experts(): unknown {
    return this.json.get('sglext')?.get('routed_experts')?.valueIfAny() ?? null;
  }

  /** vLLM's `prompt_logprobs`: a row for each token, with the token itself and the likeliest ones by their ids. */
  get promptScores(): Json | null {
    return this.json.get('prompt_logprobs') ?? this.deltas[0]?.json.get('prompt_logprobs') ?? null;
  }

  promptLogprobs(ids: () => readonly number[]): readonly PromptToken[] | null {
    const rows = this.promptScores?.valueIfAny() as
      | readonly (Readonly<Record<string, { logprob: number }>> | null)[]
      | undefined;
    if (rows === undefined) return null;
    const own = ids();
    return rows.map((row, i) => {
      if (row === null) return null;
      const top = Object.entries(row).map(([id, { logprob }]) => [logprob, Number(id), null] as const);
      return { logprob: row[own[i]!]?.logprob ?? null, top };
    });
  }
}

/** @returns null: it is no JSON object */
export function readChoices(bytes: Buffer, start: number): ChoicesAnswer | null {
  const json = Json.object(bytes, start);
  return json === null ? null : new ChoicesAnswer(json);
}

function tokenOf({ token = null, token_id: id, logprob }: ContentToken): TopTokens[number] {
  const named = token === null ? undefined : ID.exec(token)?.[1];
  return named === undefined ? [logprob ?? null, id ?? null, token] : [logprob ?? null, id ?? Number(named), null];
}
