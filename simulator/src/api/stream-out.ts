/** Turns a job's progress into stream events. A slow client gets fewer, larger ones, as from real engines. */

import type { Sink } from '../model/core.ts';
import type { SseStream } from './http-call.ts';
import type { Sequence } from '../model/sequence.ts';

/** What is new for one sequence since its last event: output tokens [from, to) and their text. */
export interface Delta {
  sequence: Sequence;
  /** The index in the response's list of choices. */
  index: number;
  from: number;
  to: number;
  text: string;
  /** The length of all text before this delta. */
  textStart: number;
  isFirst: boolean;
}

export class StreamOut implements Sink {
  readonly #stream: SseStream;
  readonly #render: (delta: Delta) => readonly object[];
  readonly #finale: () => readonly object[];
  readonly #end: () => void;
  readonly #sent: Map<Sequence, { index: number; tokens: number; chars: number; isFirst: boolean }>;
  readonly #late = new Set<Sequence>();
  #open: number;

  constructor(
    stream: SseStream,
    sequences: readonly Sequence[],
    render: (delta: Delta) => readonly object[],
    finale: () => readonly object[],
    end = (): void => stream.done(),
  ) {
    this.#stream = stream;
    this.#render = render;
    this.#finale = finale;
    this.#end = end;
    this.#open = sequences.length;
    this.#sent = new Map(sequences.map((sequence, index) => [sequence, { index, tokens: 0, chars: 0, isFirst: true }]));
    stream.onCaughtUp(() => {
      for (const sequence of this.#late) this.#send(sequence);
      this.#late.clear();
    });
  }

  progressed(sequence: Sequence): void {
    const { tokens, isFirst } = this.#sent.get(sequence)!;
    const least = sequence.script?.eventTokens ?? (isFirst ? 1 : sequence.streamInterval);
    if (sequence.output.length - tokens < least) return;
    if (this.#stream.isBehind) this.#late.add(sequence);
    else this.#send(sequence);
  }

  ended(sequence: Sequence): void {
    this.#late.delete(sequence);
    this.#send(sequence);
    const before = sequence.script?.beforeEnd;
    if (before === undefined) this.#ended();
    else void before().then(() => this.#ended());
  }

  #ended(): void {
    this.#open -= 1;
    if (this.#open > 0) return;
    for (const event of this.#finale()) this.#stream.event(event);
    this.#end();
  }

  #send(sequence: Sequence): void {
    const sent = this.#sent.get(sequence)!;
    const text = sequence.text();
    const to = sequence.output.length;
    const delta: Delta = {
      sequence,
      index: sent.index,
      from: sent.tokens,
      to,
      text: text.slice(sent.chars),
      textStart: sent.chars,
      isFirst: sent.isFirst,
    };
    sent.tokens = to;
    sent.chars = Math.max(sent.chars, text.length);
    sent.isFirst = false;
    for (const event of this.#render(delta)) this.#stream.event(event);
  }
}
