import type { Exchange } from '../exchange.ts';
import { copyInTurns } from '../kit/copy-slices.ts';
import { EventEnds } from '../kit/sse.ts';
import type { Plugin } from '../plugin.ts';
import { LARGE_BYTES } from '../threads/sizes.ts';
import type { PayloadOut } from './payload-out.ts';

export type OnFailure = (plugin: Plugin, error: unknown) => void;

/** A promise: it takes several turns of the event loop. */
export type Soon<Value> = Value | Promise<Value>;

type Phase = 'responseEvent' | 'responseBody' | 'beforeValue';

/** Bytes as they came. */
export interface Pieces {
  readonly pieces: readonly Buffer[];
  readonly bytes: number;
}

/** Steps of bytes through plugins that change a response: at once if the bytes are few and no plugin returns a promise. */
export class Changes {
  readonly plugins: readonly Plugin[];
  /** False: the exchange has failed or ended, and no further step is taken. */
  readonly isWanted: () => boolean;
  readonly #x: Exchange;
  readonly #onFailure: OnFailure;

  constructor(x: Exchange, plugins: readonly Plugin[], isWanted: () => boolean, onFailure: OnFailure) {
    this.#x = x;
    this.plugins = plugins;
    this.isWanted = isWanted;
    this.#onFailure = onFailure;
  }

  /** The next step, unless it is not wanted any more. */
  next<Value, Next>(value: Soon<Value>, step: (value: Value) => Soon<Next>): Soon<Next | undefined> {
    if (value instanceof Promise) return value.then((later) => this.next<Value, Next>(later, step));
    return this.isWanted() ? step(value) : undefined;
  }

  /** @returns what the plugins make of it; of no use if one failed */
  change(phase: Phase, event: Buffer | Pieces): Soon<Buffer> {
    const joined = event instanceof Uint8Array ? event : this.#joined(event);
    return joined instanceof Promise ? joined.then((bytes) => this.#made(phase, bytes)) : this.#made(phase, joined);
  }

  #joined({ pieces, bytes }: Pieces): Soon<Buffer> {
    if (bytes <= LARGE_BYTES) return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, bytes);
    return new Promise((resolve) => copyInTurns(pieces, bytes, this.isWanted, resolve));
  }

  #made(phase: Phase, bytes: Buffer, at = 0): Soon<Buffer> {
    const plugin = this.plugins[at];
    if (plugin === undefined || !this.isWanted()) return bytes;
    try {
      const made = plugin[phase]?.(this.#x, bytes) ?? bytes;
      if (made instanceof Promise) return this.#madeLater(phase, made, at);
      return made === bytes ? this.#made(phase, bytes, at + 1) : this.#next(phase, made, at);
    } catch (error) {
      this.#onFailure(plugin, error);
      return bytes;
    }
  }

  async #madeLater(phase: Phase, made: Promise<Buffer>, by: number): Promise<Buffer> {
    try {
      return await this.#next(phase, await made, by);
    } catch (error) {
      if (this.isWanted()) this.#onFailure(this.plugins[by]!, error);
      return NOTHING;
    }
  }

  /** What a plugin made goes to the next one: each event alone, if it made several of one, and no event that it dropped. */
  #next(phase: Phase, made: Buffer, by: number): Soon<Buffer> {
    if (phase === 'responseEvent' && made.length === 0) return made;
    const ends = phase === 'responseEvent' && by + 1 < this.plugins.length ? new EventEnds().in(made) : [];
    return ends.length > 1 ? this.#each(phase, made, ends, by + 1) : this.#made(phase, made, by + 1);
  }

  async #each(phase: Phase, events: Buffer, ends: readonly number[], at: number): Promise<Buffer> {
    const made: Buffer[] = [];
    let start = 0;
    for (const end of [...ends, events.length]) {
      if (end > start) made.push(await this.#made(phase, events.subarray(start, end), at));
      start = end;
    }
    return Buffer.concat(made);
  }

  /** Adds it to what is sent next; a large one is sent over several turns. */
  put(out: PayloadOut, bytes: Buffer): Soon<void> {
    if (bytes.length <= LARGE_BYTES) return out.add(bytes);
    return new Promise((resolve) => out.sendLarge(bytes, this.isWanted, resolve));
  }
}

const NOTHING = Buffer.alloc(0);
