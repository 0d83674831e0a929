/** Longer lines are split. */
const MAX_LINE_CHARS = 16_384;

/** Splits the output of a process into lines. The carriage returns of a progress bar end lines too. */
export class LineSplitter {
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n|\r(?!$)/);
    this.#rest = lines.pop()!;
    for (const line of lines) if (line !== '') this.#onLine(line);
    if (this.#rest.length > MAX_LINE_CHARS) this.end();
  }

  /** The rest is a line too. */
  end(): void {
    if (this.#rest !== '') this.#onLine(this.#rest);
    this.#rest = '';
  }
}
