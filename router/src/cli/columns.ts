const MAX_CELL = 60;

/** Text of clients must not control the terminal. */
export function printable(text: string, most = MAX_CELL): string {
  const plain = text.replace(/[^\x20-\x7e\u00a0-\uffff]/g, '?');
  return plain.length > most ? `${plain.slice(0, most - 1)}…` : plain;
}

/** Control characters, except those of the layout, as JSON escapes: text of clients and engines must not control the terminal. */
export const escaped = (text: string): string =>
  text.replace(/(?![\t\n])\p{Cc}/gu, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** Pads cells to columns. Columns only grow, so that lines that are printed one by one stay aligned. */
export class Columns {
  readonly #widths: number[] = [];

  constructor(...rows: readonly (readonly string[])[]) {
    for (const row of rows) this.#fit(row);
  }

  line(cells: readonly string[]): string {
    this.#fit(cells);
    return cells
      .map((cell, column) => cell.padEnd(this.#widths[column]!))
      .join('  ')
      .trimEnd();
  }

  #fit(cells: readonly string[]): void {
    for (const [column, cell] of cells.entries())
      this.#widths[column] = Math.max(this.#widths[column] ?? 0, cell.length);
  }
}

/** The first rows in aligned columns, and the number of further rows. */
export function list<T>(
  head: string,
  most: number,
  all: readonly T[],
  cellsOf: (row: T) => (string | number)[],
): string[] {
  if (all.length === 0) return [];
  const cells = [
    head.split(' '),
    ...all.slice(0, most).map((row) => cellsOf(row).map((cell) => printable(String(cell)))),
  ];
  const columns = new Columns(...cells);
  const lines = cells.map((row) => columns.line(row));
  return all.length > most ? [...lines, `… ${all.length - most} more`] : lines;
}
