import { JsonEdit, type Members } from '../kit/json-edit.ts';
import { Json } from '../kit/json-members.ts';
import { truthOf } from '../kit/truth.ts';
import type { Dialect } from './dialect.ts';

/** A prompt as its client wrote it. */
export type GivenPrompt = string | Int32Array;

const MEDIA = ['image_data', 'video_data', 'audio_data', 'features'];
const EMBEDS = ['input_embeds', 'prompt_embeds'];

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** A request for a generation: what the client asked for. Values are decoded when they are asked for. */
export class Asked {
  readonly dialect: Dialect;
  readonly body: Buffer;
  readonly #top: Json;
  /** The object with the sampling parameters; null: the request has no such object. */
  readonly params: Json | null;

  constructor(dialect: Dialect, body: Buffer, top: Json) {
    this.dialect = dialect;
    this.body = body;
    this.#top = top;
    const { params } = dialect.request;
    const given = params === null ? top : top.get(params);
    this.params = given?.isObject === true ? given : null;
  }

  /** @returns null: it is no JSON object, which the engine will refuse */
  static read(dialect: Dialect, body: Buffer): Asked | null {
    const top = Json.object(body);
    return top === null ? null : new Asked(dialect, body, top);
  }

  /** A member of the body; undefined: absent, or no JSON. */
  get(name: string): unknown {
    return this.#top.get(name)?.valueIfAny();
  }

  /** A sampling parameter; undefined: absent, or no JSON. */
  param(name: string): unknown {
    return this.params?.get(name)?.valueIfAny();
  }

  get isStream(): boolean {
    return truthOf(this.get('stream')) === true;
  }

  /** The most tokens of a sample; Infinity: as many as fit. */
  get limit(): number {
    const { limit, defaultLimit } = this.dialect.request;
    const place = this.params?.place(limit) ?? null;
    if (place === null) return defaultLimit;
    return this.body[place.valueStart] === N ? Infinity : (numberOf(this.param(limit)) ?? defaultLimit);
  }

  /** The least number of tokens of a sample. */
  get least(): number {
    return numberOf(this.param(this.dialect.request.least)) ?? 0;
  }

  get stops(): readonly string[] {
    const stop = this.param('stop') ?? [];
    const all: readonly unknown[] = Array.isArray(stop) ? stop : [stop];
    return all.filter((text): text is string => typeof text === 'string' && text !== '');
  }

  /** The response has the ids of sampled tokens without a further member. */
  get asksForIds(): boolean {
    const { asksForIds } = this.dialect.request;
    return asksForIds === null || Object.keys(asksForIds).every((name) => truthOf(this.get(name)) === true);
  }

  /** The value of the prompt; null: the request has no prompt, or several. */
  get prompt(): Json | null {
    const { ids, text } = this.dialect.request;
    const given = [ids, text]
      .filter((name, i, all) => name !== null && all.indexOf(name) === i)
      .map((name) => (this.#top.repeats(name!) ? undefined : this.#top.get(name!)))
      .filter((value) => value !== null);
    return given.length === 1 ? (given[0] ?? null) : null;
  }

  /** The prompt is one list of ids. */
  get isOneOfIds(): boolean {
    const { prompt } = this;
    if (prompt?.isList !== true) return false;
    let at = prompt.start + 1;
    while (this.body[at]! <= SPACE) at++;
    return isDigit(this.body[at]);
  }

  /** Beside text or ids there is something else, whose ids are the engine's alone. */
  get hasMedia(): boolean {
    return MEDIA.some((name) => hasData(this.#top.get(name))) || EMBEDS.some((name) => this.#top.get(name) !== null);
  }

  /** The prompts; null: their tokens can't be known, or the request is wrong, and the engine refuses it. */
  prompts(): GivenPrompt[] | null {
    if (this.hasMedia) return null;
    const { text } = this.dialect.request;
    const value = this.prompt?.valueIfAny();
    if (typeof value === 'string' && text === null) return null;
    const one = readPrompt(value);
    if (one !== null) return [one];
    if (!Array.isArray(value) || value.length === 0) return null;
    const prompts: GivenPrompt[] = [];
    for (const each of value) {
      const prompt = readPrompt(each);
      if (prompt === null || typeof prompt !== typeof (prompts[0] ?? prompt)) return null;
      prompts.push(prompt);
    }
    return prompts;
  }

  /** The samples of each prompt; null: not known. Responses have them prompt by prompt. */
  get samples(): number | null {
    const { params } = this.dialect.request;
    if (params === null) return countOf(this.get('n'));
    // A list has parameters for each prompt; SGLang wants the same `n` in all of them.
    const given = this.#top.get(params);
    if (given === null) return 1;
    const first = given.isList ? given.first() : given;
    return first?.isObject === true ? countOf(first.get('n')?.valueIfAny()) : null;
  }

  /** The name of the model, and of the adapter, for each of so many prompts. SGLang takes a list of adapters for a list of prompts. */
  models(prompts: number): readonly string[] {
    const [model, adapters] = [this.get('model'), this.get('lora_path')];
    return Array.from({ length: prompts }, (_, i) => {
      const names = [model, Array.isArray(adapters) ? (adapters as unknown[])[i] : adapters];
      return names
        .map((name) => (typeof name === 'string' ? name : ''))
        .join('\n')
        .trim();
    });
  }

  /** The request with members set. */
  with(members: Members): Buffer {
    return Object.keys(members).length === 0 ? this.body : this.edit().set(members).result();
  }

  /** An edit of the request. */
  edit(): AskedEdit {
    return new AskedEdit(this, this.#top);
  }
}

/** Changes a request; all other bytes stay the client's. */
export class AskedEdit {
  readonly #asked: Asked;
  readonly #top: Json;
  readonly #edit: JsonEdit;

  constructor(asked: Asked, top: Json) {
    this.#asked = asked;
    this.#top = top;
    this.#edit = new JsonEdit(asked.body);
  }

  /** Sets members of the body. */
  set(members: Members): this {
    this.#edit.set(0, this.#asked.body.length, members);
    return this;
  }

  /** Sets sampling parameters. Not together with `set` where they are members of the body. */
  setParams(members: Members): this {
    const { params, dialect } = this.#asked;
    if (params !== null) this.#edit.set(params.start, params.end, members);
    else {
      const text = Object.entries(members).map(([name, value]) => `${JSON.stringify(name)}:${value.toString()}`);
      this.#edit.set(0, this.#asked.body.length, { [dialect.request.params!]: `{${text.join(',')}}` });
    }
    return this;
  }

  /** Ids after those of the prompt. */
  extendPrompt(ids: string): this {
    const { end } = this.#asked.prompt!;
    this.#edit.replace(end - 1, end - 1, `,${ids}`);
    return this;
  }

  /** Ids in place of the prompts: a list for each prompt, as JSON. */
  replacePrompts(lists: readonly string[]): this {
    const { prompt, dialect } = this.#asked;
    const { ids, text } = dialect.request;
    const isList = prompt!.isList && (prompt!.first()?.isText === true || prompt!.first()?.isList === true);
    const value = isList ? `[${lists.join(',')}]` : lists[0]!;
    const name = this.#top.get(ids) === null ? text! : ids;
    const { from, to } = this.#top.place(name)!;
    this.#edit.replace(from, to, `"${ids}":${value}`);
    // Of two members with one name engines use the last, and that would be null.
    const noIds = name === ids ? null : this.#top.place(ids);
    if (noIds !== null) this.#edit.replace(noIds.from, noIds.to, `"${name}":null`);
    return this;
  }

  result(): Buffer {
    return this.#edit.result();
  }
}

/** As in SGLang 0.5.23 (`has_valid_data`): AReaL's client writes `"image_data": []` for no image. Lists may be nested to any depth. */
function hasData(json: Json | null): boolean {
  if (json === null) return false;
  const { bytes, end } = json;
  for (let at = json.start; at < end; at++) {
    const byte = bytes[at]!;
    if (byte === N) at += 'null'.length - 1;
    else if (byte > SPACE && byte !== COMMA && byte !== OPEN_ARRAY && byte !== CLOSE_ARRAY) return true;
  }
  return false;
}

function readPrompt(value: unknown): GivenPrompt | null {
  if (typeof value === 'string') return value === '' ? null : value;
  return isIds(value) ? new Int32Array(value) : null;
}

const isIds = (value: unknown): value is number[] =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every((id) => typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < 2 ** 31);

const countOf = (value: unknown): number | null =>
  value === undefined ? 1 : typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : null;

const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : null);

const SPACE = 0x20;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
/** The first byte of `null`. */
const N = 0x6e;
