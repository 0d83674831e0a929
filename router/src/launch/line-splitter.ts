/** A line that is longer goes out in parts. */
const MAX_LINE_CHARS = 16_384;

/** Cuts what a process prints into lines. A progress bar's carriage returns end a line too. */
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

  /** Nothing more comes: what has no end yet is a line as well. */
  end(): void {
    if (this.#rest !== '') this.#onLine(this.#rest);
    this.#rest = '';
  }
}
