const MIN_ROWS = 64;

/**
 * A map from 64-bit keys to a few 32-bit values each, in one typed array: millions of entries at no cost for garbage
 * collection. Open addressing without tombstones, so that it stays fast however often entries change.
 *
 * A row is `lo, hi, value 0, value 1, …`, and is in use if its value 0 is not 0. `at` is the index of a row in `cells`,
 * valid until the next insert or remove.
 */
export class U64Table {
  cells: Uint32Array;
  size = 0;
  readonly #width: number;
  #mask = MIN_ROWS - 1;

  constructor(values: number) {
    this.#width = values + 2;
    this.cells = new Uint32Array(MIN_ROWS * this.#width);
  }

  /** @returns the row's index, or -1 */
  find(lo: number, hi: number): number {
    const { cells } = this;
    for (let row = home(lo, hi) & this.#mask; ; row = (row + 1) & this.#mask) {
      const at = row * this.#width;
      if (cells[at + 2] === 0) return -1;
      if (cells[at] === lo && cells[at + 1] === hi) return at;
    }
  }

  /** Adds a missing key. @returns its row; the caller must set value 0 */
  insert(lo: number, hi: number): number {
    const rows = this.#mask + 1;
    if (this.size >= rows * 0.7) this.#resize(rows * 2);
    this.size++;
    return this.#place(lo, hi);
  }

  remove(at: number): void {
    const { cells } = this;
    const width = this.#width;
    let hole = at / width;
    // Rows after the hole that could not be found any more move into it.
    for (let row = (hole + 1) & this.#mask; cells[row * width + 2] !== 0; row = (row + 1) & this.#mask) {
      const from = row * width;
      const wanted = home(cells[from]!, cells[from + 1]!) & this.#mask;
      if (((row - wanted) & this.#mask) < ((row - hole) & this.#mask)) continue;
      cells.copyWithin(hole * width, from, from + width);
      hole = row;
    }
    cells.fill(0, hole * width, (hole + 1) * width);
    this.size--;
    const rows = this.#mask + 1;
    if (rows > MIN_ROWS && this.size < rows / 8) this.#resize(rows / 2);
  }

  clear(): void {
    this.size = 0;
    this.#mask = MIN_ROWS - 1;
    this.cells = new Uint32Array(MIN_ROWS * this.#width);
  }

  #place(lo: number, hi: number): number {
    const { cells } = this;
    let row = home(lo, hi) & this.#mask;
    while (cells[row * this.#width + 2] !== 0) row = (row + 1) & this.#mask;
    const at = row * this.#width;
    cells[at] = lo;
    cells[at + 1] = hi;
    return at;
  }

  #resize(rows: number): void {
    const old = this.cells;
    const width = this.#width;
    this.#mask = rows - 1;
    this.cells = new Uint32Array(rows * width);
    for (let from = 0; from < old.length; from += width) {
      if (old[from + 2] === 0) continue;
      const at = this.#place(old[from]!, old[from + 1]!);
      for (let i = 2; i < width; i++) this.cells[at + i] = old[from + i]!;
    }
  }
}

function home(lo: number, hi: number): number {
  const hash = Math.imul(lo ^ Math.imul(hi, 0x85ebca6b), 0x9e3779b1);
  return hash ^ (hash >>> 15);
}
