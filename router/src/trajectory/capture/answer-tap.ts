import type { AnswerEar } from '../../exchange.ts';
import type { CopyPool } from '../../kit/copy-pool.ts';

/** Of a longer answer nothing is kept: it has no few tokens but tensors in it. */
export const MAX_ANSWER_BYTES = 67_108_864;

const EVENT_END = Buffer.from('\n\n');
/** Where SGLang puts the number of a sample: at the end of an event. */
const INDEX = Buffer.from('"index":');

/**
 * Keeps what an engine answers. Of a stream whose events each have all so far (SGLang's default) only the newest event of each sample:
 * all of them together grow with the square of its length.
 */
export class AnswerTap implements AnswerEar {
  /** Too much for it: nothing was kept. */
  isTooLarge = false;
  readonly #isStream: boolean;
  readonly #isAlone: boolean;
  #parts: Buffer[] = [];
  #bytes = 0;
  /** null: not known yet. */
  #isCumulative: boolean | null;
  /** The newest event of each sample, of a cumulative stream. */
  readonly #newest = new Map<string, Buffer>();

  /** Where answers that are no streams are copied to: they are not kept for long. */
  readonly #pool: CopyPool | null;

  /** @param mayBeCumulative false where the dialect knows of no such streams */
  constructor(isStream: boolean, isAlone: boolean, mayBeCumulative: boolean, pool: CopyPool | null = null) {
    this.#pool = isStream ? null : pool;
    this.#isStream = isStream;
    this.#isAlone = isAlone;
    this.#isCumulative = isStream && mayBeCumulative ? null : false;
  }

  hear(bytes: Buffer, start: number, end: number): void {
    if (this.isTooLarge) return;
    // The buffer is read into again.
    this.#parts.push(this.#pool?.take(bytes, start, end) ?? copyOf(bytes, start, end));
    this.#bytes += end - start;
    if (this.#isCumulative !== false && this.#parts.at(-1)!.includes(EVENT_END)) this.#keepNewest();
    if (this.#bytes <= MAX_ANSWER_BYTES) return;
    this.isTooLarge = true;
    this.#parts = [];
    this.#newest.clear();
  }

  /** What came: of a stream, events that its sampled tokens can be told by. */
  take(): Buffer {
    const parts = [...this.#newest.values(), ...this.#parts];
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  /** Nobody reads any more what it took. */
  free(): void {
    for (const part of this.#parts) this.#pool?.giveBack(part);
    this.#parts = [];
  }

  get isStream(): boolean {
    return this.#isStream;
  }

  #keepNewest(): void {
    const all = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
    if (this.#isCumulative === null && !this.#tellKind(all)) return;
    if (this.#isCumulative === false) return;
    const end = all.lastIndexOf(EVENT_END) + EVENT_END.length;
    if (this.#isAlone) this.#keep(lastEvent(all, end));
    else for (const event of eventsOf(all, end)) this.#keep(event);
    const rest = all.subarray(end);
    this.#parts = rest.length === 0 ? [] : [rest];
    this.#bytes = rest.length;
    for (const event of this.#newest.values()) this.#bytes += event.length;
  }

  #keep(event: Buffer): void {
    // What says that it is over, or why it broke off, has no tokens.
    if (event.includes(INDEX) || (this.#isAlone && event.includes('"meta_info"'))) {
      this.#newest.set(this.#isAlone ? '' : indexOf(event), event);
    }
  }

  /** The second event of a sample tells: does it have the tokens of the first one? */
  #tellKind(all: Buffer): boolean {
    const seen = new Map<string, { ids: number; total: number }>();
    for (const event of eventsOf(all, all.lastIndexOf(EVENT_END) + EVENT_END.length)) {
      const counts = countsOf(event);
      if (counts === null) continue;
      const key = indexOf(event);
      const before = seen.get(key);
      seen.set(key, counts);
      if (before === undefined || counts.total === before.total) continue;
      this.#isCumulative = counts.ids === counts.total;
      return true;
    }
    return false;
  }
}

/** In memory of its own: what is kept would keep all that is beside it. */
function copyOf(bytes: Buffer, start: number, end: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(end - start);
  bytes.copy(copy, 0, start, end);
  return copy;
}

/** The last event before `end`; where it has no tokens ("[DONE]"), the one before it. */
function lastEvent(all: Buffer, end: number): Buffer {
  let to = end;
  while (to > 0) {
    const before = all.lastIndexOf(EVENT_END, to - EVENT_END.length - 1);
    const event = all.subarray(before < 0 ? 0 : before + EVENT_END.length, to);
    if (event.includes('"meta_info"')) return event;
    to = before < 0 ? 0 : before + EVENT_END.length;
  }
  return Buffer.alloc(0);
}

function* eventsOf(all: Buffer, end: number): Iterable<Buffer> {
  for (let from = 0; from < end;) {
    const to = all.indexOf(EVENT_END, from) + EVENT_END.length;
    yield all.subarray(from, to);
    from = to;
  }
}

/** As it is written; '' for the only one. */
function indexOf(event: Buffer): string {
  const at = event.lastIndexOf(INDEX);
  return at < 0
    ? ''
    : (/^\s*\d+/.exec(event.toString('latin1', at + INDEX.length, at + INDEX.length + 16))?.[0].trim() ?? '');
}

/** How many ids an event has and how many tokens there are so far; null: it has none. */
function countsOf(event: Buffer): { ids: number; total: number } | null {
  try {
    const value = JSON.parse(event.toString('utf8', event.indexOf('{'))) as {
      output_ids?: readonly unknown[];
      meta_info?: { completion_tokens?: number; output_token_logprobs?: readonly unknown[] };
    };
    const ids = value.output_ids ?? value.meta_info?.output_token_logprobs;
    const total = value.meta_info?.completion_tokens;
    return ids === undefined || total === undefined ? null : { ids: ids.length, total };
  } catch {
    return null;
  }
}
