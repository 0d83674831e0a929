import { ChoicesAnswer, readChoices } from '../../../engines/dialects/choices.ts';
import { Unreadable } from '../../../generation/delta.ts';
import { objectStarts } from '../../../kit/sse.ts';

const LF = 0x0a;

/** Members of an event that are about all choices. Of several events with such a member the last one counts. */
const SHARED = ['prompt_token_ids', 'metadata', 'sglext'] as const;

/** The events of choices that have ended. */
export interface EndedChoices {
  /** Also the events about all choices. */
  readonly answers: readonly ChoicesAnswer[];
  /** Choices of the stream whose events are not among them. */
  readonly others: readonly number[];
}

/**
 * Finds the events of each choice in a stream that comes part by part. Events are read when their choice has ended: to read all events at the
 * end of each choice takes time that grows with the square of the number of choices.
 */
export class ChoiceEvents {
  /** So many bytes of the stream were searched. */
  #searched = 0;
  /** Where the events of a choice begin. */
  readonly #starts = new Map<number, number[]>();
  readonly #ended = new Set<number>();
  /** Where events without choices begin. */
  readonly #common: number[] = [];
  /** Where the last event with such a member begins. */
  readonly #shared = new Map<string, number>();

  /**
   * The events of the choices that have ended, and are no turns. Throws `Unreadable`.
   * @param bytes the stream so far: what came before, and the new part
   */
  ended(bytes: Buffer, isTurn: (index: number) => boolean): EndedChoices {
    const added = this.#search(bytes);
    for (const index of this.#starts.keys()) if (isTurn(index)) this.#starts.set(index, []);
    const wanted = new Set([...this.#ended].filter((index) => !isTurn(index)));
    const starts = new Set([...this.#common, ...this.#shared.values()]);
    for (const index of wanted) for (const start of this.#starts.get(index)!) starts.add(start);
    const answers = Array.from(starts)
      .toSorted((a, b) => a - b)
      .map((start) => {
        const answer = added.get(start) ?? answerAt(bytes, start);
        const deltas = answer.deltas.filter(({ index }) => wanted.has(index));
        return deltas.length === answer.deltas.length ? answer : new ChoicesAnswer(answer.json, deltas);
      });
    return { answers, others: [...this.#starts.keys()].filter((index) => !wanted.has(index)) };
  }

  /** @returns the new events by where they begin */
  #search(bytes: Buffer): Map<number, ChoicesAnswer> {
    const added = new Map<number, ChoicesAnswer>();
    const from = this.#searched;
    for (const at of objectStarts(bytes.subarray(from))) {
      const start = from + at;
      const answer = answerAt(bytes, start);
      added.set(start, answer);
      if (answer.deltas.length === 0) this.#common.push(start);
      for (const name of SHARED) if (answer.json.get(name) !== null) this.#shared.set(name, start);
      for (const { index, finish } of answer.deltas) {
        const starts = this.#starts.get(index);
        if (starts === undefined) this.#starts.set(index, [start]);
        else starts.push(start);
        if (finish !== null) this.#ended.add(index);
      }
    }
    this.#searched = bytes.lastIndexOf(LF) + 1;
    return added;
  }
}

/** Throws `Unreadable`. */
export function answerAt(bytes: Buffer, start: number): ChoicesAnswer {
  const answer = readChoices(bytes, start);
  if (answer === null) throw new Unreadable('it is no JSON object');
  return answer;
}
