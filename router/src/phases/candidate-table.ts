/** A worker that a policy compared with others, and the numbers that the policy compared. */
export interface Candidate {
  readonly worker: string;
  readonly terms: Readonly<Record<string, number>>;
}

let lastNames: readonly string[] = [];

/** The names are the same for most choices: one list of them is kept. */
function namesOf(candidates: readonly Candidate[]): readonly string[] {
  if (!candidates.every(hasLastNames)) lastNames = [...new Set(candidates.flatMap(({ terms }) => Object.keys(terms)))];
  return lastNames;
}

function hasLastNames({ terms }: Candidate): boolean {
  let i = 0;
  for (const name in terms) if (name !== lastNames[i++]) return false;
  return i === lastNames.length;
}

/**
 * The candidates of a choice, kept for as long as its exchange is: numbers in one array take a fifth of the memory, and of the garbage
 * collector's time, of an object for each candidate. As JSON it is a list of candidates.
 */
export class CandidateTable {
  readonly #workers: readonly string[];
  readonly #names: readonly string[];
  /** Candidate by candidate; NaN: it has no such term. */
  readonly #values: readonly number[];

  constructor(candidates: readonly Candidate[]) {
    const names = namesOf(candidates);
    // Of its final length, because a list that grows keeps room for more.
    const values: number[] = [];
    values.length = candidates.length * names.length;
    values.fill(Number.NaN);
    for (const [row, { terms }] of candidates.entries()) {
      let column = 0;
      for (const name in terms) {
        // Almost always the names come in this order.
        const at = name === names[column] ? column : names.indexOf(name);
        values[row * names.length + at] = terms[name]!;
        column++;
      }
    }
    this.#workers = candidates.map(({ worker }) => worker);
    this.#names = names;
    this.#values = values;
  }

  get size(): number {
    return this.#workers.length;
  }

  toJSON(): Candidate[] {
    return this.#workers.map((worker, row) => {
      const terms: Record<string, number> = {};
      for (const [column, name] of this.#names.entries()) {
        const value = this.#values[row * this.#names.length + column]!;
        if (!Number.isNaN(value)) terms[name] = value;
      }
      return { worker, terms };
    });
  }
}
