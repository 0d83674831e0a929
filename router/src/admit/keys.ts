import { hash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** Where the keys of a set come from. */
export interface KeySource {
  readonly keys: readonly string[];
  /** A key a line; empty lines and those that begin with `#` are left out. */
  readonly file: string | undefined;
  /** The option that names the file, for messages. */
  readonly option: string;
}

/** What a key may be made of: it travels in a header. */
const KEY = /^[\x21-\x7e]+$/;

/** What sets are asked with: once made, it serves for all of them. */
export const digestOf = (key: string): Buffer => hash('sha256', key, 'buffer');

/** Keys that are asked for. Held as digests: comparing takes the same time whatever was presented, and none can be shown. */
export class KeySet {
  readonly #source: KeySource;
  #digests: readonly Buffer[] = [];
  #first = '';

  constructor(source: KeySource) {
    this.#source = source;
    this.prepare()();
  }

  get isEmpty(): boolean {
    return this.#digests.length === 0;
  }

  /** The first key, for requests to other servers; '' without keys. */
  get first(): string {
    return this.#first;
  }

  /** @param digest of what was presented */
  has(digest: Buffer): boolean {
    let isKnown = false;
    // No early return: the time must not show how many keys precede the right one.
    for (const known of this.#digests) if (timingSafeEqual(known, digest)) isKnown = true;
    return isKnown;
  }

  /** Reads the file again. Throws, in words without keys. @returns what puts its keys in force */
  prepare(): () => void {
    const { keys, file } = this.#source;
    const all = file === undefined ? keys : [...keys, ...this.#readFile(file)];
    const digests = all.map(digestOf);
    return () => {
      this.#digests = digests;
      this.#first = all[0] ?? '';
    };
  }

  #readFile(file: string): string[] {
    const { option } = this.#source;
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      throw new Error(`${option} ${file}: not readable (${(error as NodeJS.ErrnoException).code}).`, { cause: error });
    }
    const lines = text.split('\n').map((line) => line.trim());
    const keys = lines.filter((line) => line !== '' && !line.startsWith('#'));
    const bad = keys.find((key) => !KEY.test(key));
    if (bad !== undefined) {
      throw new Error(`${option} ${file}: line ${lines.indexOf(bad) + 1} is not a key: visible ASCII, no spaces.`);
    }
    // An empty file must not open the door.
    if (keys.length === 0) throw new Error(`${option} ${file}: no key in it.`);
    return keys;
  }
}
