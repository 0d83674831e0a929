/** Takes some ms to make, in which requests wait. */
const PART_BYTES = 131_072;

/** Bytes that are made at the pace of a reader on another thread, by number. */
export class ByteStreams {
  readonly #streams = new Map<number, AsyncGenerator<Uint8Array>>();
  #lastId = 0;

  get size(): number {
    return this.#streams.size;
  }

  /** @returns the argument of `next` and `end` */
  begin(made: AsyncGenerator<Uint8Array>): number {
    this.#streams.set(++this.#lastId, made);
    return this.#lastId;
  }

  /**
   * The next bytes, about `PART_BYTES`: with a line each, every line would wait for its turn between the calls of requests.
   * null: they are complete.
   */
  async next(id: number): Promise<Uint8Array | null> {
    const made = this.#streams.get(id);
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    while (made !== undefined && bytes < PART_BYTES) {
      const result = await made.next().catch((error: unknown) => {
        this.#streams.delete(id);
        throw error;
      });
      if (result.done === true) {
        this.#streams.delete(id);
        break;
      }
      pieces.push(result.value);
      bytes += result.value.length;
    }
    return pieces.length === 0 ? null : pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  }

  /** The rest is not needed. */
  async end(id: number): Promise<void> {
    await this.#streams.get(id)?.return(undefined);
    this.#streams.delete(id);
  }
}
