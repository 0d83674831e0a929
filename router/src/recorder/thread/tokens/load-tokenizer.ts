import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Tokenizer as JsTokenizer } from '@huggingface/tokenizers';
import { TokenPieces, type TokenizerJson } from './pieces.ts';
import { spelledOut } from './spelled-out.ts';
import type { Tokenizer } from './tokenizer.ts';

/** What is used of the `tokenizers` package. */
interface Native {
  encode(text: string, pair: null, options: { addSpecialTokens: boolean }): Promise<{ getIds(): number[] }>;
  decode(ids: readonly number[], skipSpecialTokens: boolean): Promise<string>;
  disablePadding(): void;
  disableTruncation(): void;
}

/** @param kind 'auto': native where it is installed */
export type TokenizerChoice = 'auto' | 'js' | 'native';

/** What a tokenizer is loaded from: plain data, for threads. */
export interface TokenizerSource {
  /** A tokenizer.json, or a model's folder. */
  readonly path: string;
  readonly choice: TokenizerChoice | undefined;
}

/** Loads a tokenizer.json, or that of a model's folder. Throws with words. */
export async function loadTokenizer(path: string, choice: TokenizerChoice = 'auto'): Promise<Tokenizer> {
  const file = tokenizerFile(path);
  const text = readFileSync(file, 'utf8');
  let json: TokenizerJson;
  try {
    json = JSON.parse(text) as TokenizerJson;
  } catch (error) {
    throw new Error(`${file} is no JSON: ${(error as Error).message}`, { cause: error });
  }
  const vocab: unknown = (json as Partial<TokenizerJson> | null)?.model?.vocab;
  if (typeof vocab !== 'object' || vocab === null) throw new Error(`${file} is no tokenizer: it has no vocabulary`);
  const pieces = new TokenPieces(json);
  const native = choice === 'js' ? null : loadNative(text, choice === 'native');
  const plain = native === null ? byJs(json, pieces) : byNative(native, pieces);
  return withSpecials(plain, await plain.encode('a', true), await plain.encode('a', false));
}

function tokenizerFile(path: string): string {
  let isFolder: boolean;
  try {
    isFolder = statSync(path).isDirectory();
  } catch {
    throw new Error(`--tokenizer-path ${path}: there is no such file or folder`);
  }
  if (!isFolder) return path;
  const file = join(path, 'tokenizer.json');
  try {
    statSync(file);
  } catch {
    throw new Error(`--tokenizer-path ${path}: no tokenizer.json in it (save the model's fast tokenizer there)`);
  }
  return file;
}

function loadNative(json: string, isRequired: boolean): Native | null {
  try {
    const { Tokenizer: Loaded } = createRequire(import.meta.url)('tokenizers') as {
      Tokenizer: { fromString(json: string): Native };
    };
    const native = Loaded.fromString(json);
    // A file that was saved in training may have a length to pad or cut texts to. Engines do neither.
    native.disablePadding();
    native.disableTruncation();
    return native;
  } catch (error) {
    if (isRequired) throw error;
    return null;
  }
}

type Plain = Omit<Tokenizer, 'before' | 'after'>;

function byNative(native: Native, pieces: TokenPieces): Plain {
  return {
    kind: 'native',
    pieces,
    async encode(text, addSpecial) {
      return text === '' && !addSpecial
        ? []
        : (await native.encode(text, null, { addSpecialTokens: addSpecial })).getIds();
    },
    decode: (ids) => native.decode(ids, false),
  };
}

function byJs(json: TokenizerJson, pieces: TokenPieces): Plain {
  const tokenizer = new JsTokenizer(spelledOut(json), {});
  return {
    kind: 'js',
    pieces,
    encode: (text, addSpecial) => tokenizer.encode(text, { add_special_tokens: addSpecial }).ids,
    decode: (ids) => (ids.length === 0 ? '' : tokenizer.decode([...ids], { clean_up_tokenization_spaces: false })),
  };
}

function withSpecials(plain: Plain, framed: readonly number[], bare: readonly number[]): Tokenizer {
  let start = 0;
  while (start + bare.length < framed.length && !bare.every((id, i) => framed[start + i] === id)) start++;
  return { ...plain, before: framed.slice(0, start), after: framed.slice(start + bare.length) };
}
