/** What of the text goes out at a stop string: that before it, that with it, or all that came (SGLang's `no_stop_trim`). */
export type TextEnd = 'before' | 'with' | 'all';

/** What goes out of the text of a generation, and the stop string that ended it. */
export interface Released {
  readonly text: string;
  /** null: none so far. */
  readonly stop: string | null;
}

/**
 * Follows the text of a generation over its parts, where it has stop strings: an engine does not see one that begins before its own part.
 *
 * vLLM (0.32) keeps back as much text as may become part of a stop string, so the text of the last tokens would be lost with it. The router
 * asks it for all text (`include_stop_str_in_output`) and keeps that back itself. SGLang (0.5.23) keeps nothing back.
 */
export class StopText {
  readonly #stops: readonly string[];
  readonly #keepsBack: boolean;
  readonly #end: TextEnd;
  readonly #longest: number;
  /** The end of the text: what a stop string may begin in, and what is kept back. */
  #tail = '';
  /** So much of it went out. */
  #sent = 0;
  /** So much of the text at the beginning of the tail came with earlier parts. */
  #earlier = 0;

  constructor(stops: readonly string[], keepsBack: boolean, end: TextEnd) {
    this.#stops = stops;
    this.#keepsBack = keepsBack;
    this.#end = end;
    this.#longest = Math.max(...stops.map(({ length }) => length));
  }

  /** The next text comes from another engine. */
  seam(): void {
    this.#earlier = this.#tail.length;
  }

  /** @param isEnd nothing comes any more @param isStopped by a stop string */
  push(text: string, isEnd: boolean, isStopped: boolean): Released {
    const before = this.#tail.length;
    const all = this.#tail + text;
    const stop = this.#find(all, before, isStopped);
    if (stop !== null) {
      const at = endOf(all, stop, before, this.#end);
      return { text: all.slice(this.#sent, Math.max(this.#sent, at)), stop };
    }
    const kept = whole(all, all.length - (this.#longest - 1));
    const until = this.#keepsBack && !isEnd ? Math.max(this.#sent, kept) : all.length;
    const released = all.slice(this.#sent, until);
    const dropped = Math.max(0, kept);
    this.#tail = all.slice(dropped);
    this.#sent = Math.max(0, until - dropped);
    this.#earlier = Math.max(0, this.#earlier - dropped);
    return { text: released, stop: null };
  }

  /** The first of the stop strings that ends in the new text, and that the engine can't have seen, or says that it has. */
  #find(all: string, before: number, isStopped: boolean): string | null {
    for (const stop of this.#stops) {
      const at = all.indexOf(stop, Math.max(0, before - stop.length + 1));
      if (at >= 0 && ((this.#keepsBack && isStopped) || at < this.#earlier)) return stop;
    }
    return null;
  }
}

/** Where a text ends at a stop string that ends after `before`. */
export function endOf(all: string, stop: string, before: number, end: TextEnd): number {
  if (end === 'all') return all.length;
  return all.indexOf(stop, Math.max(0, before - stop.length + 1)) + (end === 'with' ? stop.length : 0);
}

/** An index that is not within a character of two units. */
const whole = (text: string, at: number): number => (at > 0 && (text.charCodeAt(at) & 0xfc00) === 0xdc00 ? at - 1 : at);
