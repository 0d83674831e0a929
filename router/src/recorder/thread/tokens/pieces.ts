import { letterOfByte } from '../../../kit/byte-letters.ts';

/** What is read of a tokenizer.json here. */
export interface TokenizerJson {
  readonly added_tokens?: readonly { readonly id: number; readonly content: string; readonly special: boolean }[];
  readonly normalizer?: Part | null;
  readonly pre_tokenizer?: PreTokenizer | null;
  readonly decoder?: Part | null;
  readonly model: { readonly type?: string; readonly vocab: Readonly<Record<string, number>> | readonly unknown[] };
}

interface Part {
  readonly type: string;
  readonly decoders?: readonly Part[];
  readonly normalizers?: readonly Part[];
  readonly pretokenizers?: readonly Part[];
  readonly add_prefix_space?: boolean;
  readonly prepend_scheme?: string;
}

/** What cuts a text into the parts that merges join within. */
export interface PreTokenizer extends Part {
  readonly pretokenizers?: readonly PreTokenizer[];
  readonly pattern?: { readonly Regex?: string };
  readonly behavior?: string;
  readonly invert?: boolean;
  readonly use_regex?: boolean;
  readonly individual_digits?: boolean;
  readonly replacement?: string;
  readonly split?: boolean;
}

/** How the entries of a vocabulary are spelled. */
type Spelling =
  /** Every byte as a letter (GPT-2, Llama 3, Qwen). */
  | 'bytes'
  /** `▁` for a space, `<0x0A>` for a byte (Llama 2, Gemma). */
  | 'metaspace'
  /** Otherwise the text of a token depends on its neighbours. */
  | 'unknown';

/** What tokens and a text have in common. */
export interface TextShared {
  /** Complete tokens. */
  readonly tokens: number;
  /** Including a part of the next token. */
  readonly bytes: number;
}

const partsOf = (part: Part | null | undefined): readonly Part[] =>
  part === null || part === undefined
    ? []
    : [part, ...[part.decoders, part.normalizers, part.pretokenizers].flatMap((inner) => inner ?? []).flatMap(partsOf)];

/** The bytes of the text of each id, independent of its neighbours. They never change. */
export class TokenPieces {
  readonly #spellings: (string | undefined)[] = [];
  readonly #spelling: Spelling;
  readonly #special = new Set<number>();
  readonly #added = new Map<number, string>();
  readonly #cache: (Buffer | null | undefined)[] = [];
  /** By their bytes, as Latin-1; -1: several. null: not built yet. */
  #ids: Map<string, number> | null = null;
  /** One more than the largest id. */
  readonly #count: number;
  /** A space, or its replacement, is put before a text, so the rest of a text can't be encoded as a text of its own. */
  readonly prependsSpace: boolean;

  constructor(json: TokenizerJson) {
    const { vocab } = json.model;
    if (Array.isArray(vocab)) {
      for (const [id, entry] of vocab.entries()) this.#spellings[id] = String((entry as readonly unknown[])[0]);
    } else for (const [text, id] of Object.entries(vocab as Record<string, number>)) this.#spellings[id] = text;
    for (const { id, content, special } of json.added_tokens ?? []) {
      this.#added.set(id, content);
      if (special) this.#special.add(id);
    }
    this.#count = Math.max(this.#spellings.length, ...[...this.#added.keys()].map((id) => id + 1));
    this.#spelling = spellingOf(partsOf(json.decoder));
    this.prependsSpace = [...partsOf(json.normalizer), ...partsOf(json.pre_tokenizer)].some(
      ({ type, add_prefix_space, prepend_scheme }) =>
        type === 'Prepend' ||
        (type === 'ByteLevel' && add_prefix_space === true) ||
        (type === 'Metaspace' && (prepend_scheme ?? (add_prefix_space === false ? 'never' : 'always')) !== 'never'),
    );
  }

  /** Engines leave these out of texts (`skip_special_tokens`). */
  isSpecial(id: number): boolean {
    return this.#special.has(id);
  }

  /** null: not known, or there is no such id. */
  bytesOf(id: number): Buffer | null {
    const known = this.#cache[id];
    if (known !== undefined) return known;
    // Whatever a client calls an id: it would stay here, and make a slow table of the list.
    if (id >= this.#count) return null;
    const added = this.#added.get(id);
    const spelled = this.#spellings[id];
    // Gemma's added tokens for runs of spaces are `▁▁`. Special ones are what templates have, such as DeepSeek's `<｜end▁of▁sentence｜>`.
    const isLiteral = added !== undefined && (this.#spelling !== 'metaspace' || this.#special.has(id));
    const text = added ?? spelled;
    const bytes = isLiteral ? Buffer.from(added) : text === undefined ? null : this.#spell(text);
    this.#cache[id] = bytes;
    return bytes;
  }

  /** The only id with these bytes; null: there is none, there are several, or texts depend on neighbours. */
  idOf(bytes: Buffer): number | null {
    if (this.#spelling !== 'bytes') return null;
    this.#ids ??= this.#byBytes();
    const id = this.#ids.get(bytes.toString('latin1')) ?? -1;
    return id < 0 ? null : id;
  }

  #byBytes(): Map<string, number> {
    const ids = new Map<string, number>();
    const add = (id: number, bytes: Buffer | null): void => {
      if (bytes === null) return;
      const key = bytes.toString('latin1');
      ids.set(key, (ids.get(key) ?? id) === id ? id : -1);
    };
    for (let id = 0; id < this.#spellings.length; id++) add(id, this.bytesOf(id));
    for (const [id, content] of this.#added) {
      add(id, Buffer.from(content));
      // Read as letters for bytes.
      add(id, this.#spell(content));
    }
    return ids;
  }

  /** The text of each of these ids is known, and independent of its neighbours. */
  areKnown(ids: Int32Array): boolean {
    return ids.every((id) => this.bytesOf(id) !== null);
  }

  /** The texts of these ids together are this one, and each has some. */
  spell(ids: Int32Array, text: Buffer): boolean {
    const { tokens, bytes } = this.match(ids, 0, ids.length, text, 0);
    return tokens === ids.length && bytes === text.length && ids.every((id) => this.bytesOf(id)!.length > 0);
  }

  /** The first byte of an id's text; -1: it has no text. */
  firstByteOf(id: number): number {
    return this.bytesOf(id)?.[0] ?? -1;
  }

  /** The number of bytes of the text of these ids. */
  lengthOf(ids: Int32Array, from: number, to: number): number {
    let length = 0;
    for (let i = from; i < to; i++) length += this.bytesOf(ids[i]!)!.length;
    return length;
  }

  /** How many of these ids, in order, have the text that continues `text` at `textAt`. */
  match(ids: Int32Array, from: number, to: number, text: Buffer, textAt: number): TextShared {
    let at = textAt;
    for (let i = from; i < to; i++) {
      const piece = this.bytesOf(ids[i]!);
      let shared = 0;
      // Pieces are a few bytes each: a call to compare them costs more than they do.
      while (piece !== null && shared < piece.length && piece[shared] === text[at + shared]) shared++;
      at += shared;
      if (piece === null || shared < piece.length) return { tokens: i - from, bytes: at - textAt };
    }
    return { tokens: to - from, bytes: at - textAt };
  }

  #spell(text: string): Buffer | null {
    if (this.#spelling === 'unknown') return null;
    if (this.#spelling === 'metaspace') {
      const byte = /^<0x([0-9A-F]{2})>$/.exec(text)?.[1];
      return byte === undefined ? Buffer.from(text.replaceAll('▁', ' ')) : Buffer.of(Number.parseInt(byte, 16));
    }
    const bytes = Buffer.alloc(text.length);
    for (let i = 0; i < text.length; i++) {
      const byte = byteOfLetter.get(text[i]!);
      if (byte === undefined) return null;
      bytes[i] = byte;
    }
    return bytes;
  }
}

function spellingOf(decoders: readonly Part[]): Spelling {
  const types = new Set(decoders.map(({ type }) => type));
  if (types.has('ByteLevel')) return 'bytes';
  return types.has('ByteFallback') || types.has('Metaspace') ? 'metaspace' : 'unknown';
}

const byteOfLetter = new Map(letterOfByte.map((letter, byte) => [letter, byte]));
