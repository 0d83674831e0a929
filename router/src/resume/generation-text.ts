import type { Delta } from '../generation/delta.ts';
import type { RequestFacts } from './request.ts';
import { type Released, StopText, type TextEnd, endOf } from './stop-text.ts';

/** The text of a generation over all its parts: how long it is, and what of it goes out where the request has stop strings. */
export class GenerationText {
  /** Engines are asked for the text of stop strings too: see `StopText`. */
  readonly showsStops: boolean;
  /** False: another engine would not find a stop string that begins in the text of this one. */
  readonly canContinue: boolean;
  /** Bytes of the text of the newest event; null: it has none. */
  bytes: number | null = 0;
  /** Code points of text in earlier parts. */
  offset = 0;
  /** In all parts. */
  #length = 0;
  /** Of the present part, if its events have all of it. */
  #ofPart = '';
  readonly #isCounted: boolean;
  readonly #end: TextEnd;
  readonly #stopText: StopText | null;

  constructor({ dialect, isStream, stops, showsStop, showsTokens }: RequestFacts, isVllm: boolean) {
    const form = dialect.name;
    const hasStops = stops.length > 0;
    const isKept = isVllm && form === 'completions' && isStream && hasStops && !showsStop;
    this.showsStops = isKept && !showsTokens;
    this.canContinue = !hasStops || (form !== 'inference' && isKept === this.showsStops);
    this.#isCounted = form === 'completions';
    this.#end = !showsStop ? 'before' : isVllm ? 'with' : 'all';
    this.#stopText = hasStops && isStream ? new StopText(stops, this.showsStops, this.#end) : null;
  }

  /** @param hasTokens the part that ends here has some */
  seam(hasTokens: boolean): void {
    if (hasTokens) {
      this.offset = this.#length;
      this.#stopText?.seam();
    }
    this.bytes = 0;
    this.#ofPart = '';
  }

  /** A whole answer is a part. */
  answered(body: Buffer): void {
    this.#length = this.offset + endOfOffsets(body);
  }

  /**
   * What goes out of the text of an event; null: the engine's own.
   * @param earlier the text of the parts before
   */
  released(part: Delta, isDelta: boolean, earlier: () => string): Released | null {
    this.bytes = part.textBytes;
    if (part.textBytes === null) return null;
    if (this.#stopText === null && !this.#isCounted) return null;
    const text = part.text() ?? '';
    const added = isDelta ? text : text.slice(this.#ofPart.length);
    if (this.#isCounted) this.#length += [...added].length;
    if (!isDelta) this.#ofPart = text;
    if (this.#stopText === null) return null;
    const released = this.#stopText.push(added, part.finish !== null, stopStringOf(part) !== null);
    if (this.showsStops) return released;
    if (released.stop === null) return null;
    if (isDelta) return released;
    const before = earlier();
    const all = before + text;
    return { ...released, text: all.slice(0, endOf(all, released.stop, before.length, this.#end)) };
  }
}

/** The stop string that ended it; null: a stop token, or something else, did. */
export const stopStringOf = ({ stop }: Delta): string | null => (typeof stop === 'string' ? stop : null);

/** Where the text of the next token of a whole answer of `/v1/completions` begins, as vLLM counts it: an echoed prompt is a part of it. */
function endOfOffsets(answer: Buffer): number {
  interface Choices {
    readonly choices?: readonly { logprobs: { text_offset?: number[]; tokens?: string[] } | null }[];
  }
  const { text_offset: offsets = [], tokens = [] } =
    (JSON.parse(answer.toString()) as Choices).choices?.[0]?.logprobs ?? {};
  return (offsets.at(-1) ?? 0) + [...(tokens.at(-1) ?? '')].length;
}
