/** Takes some ms to make, in which requests wait. */
const PART_BYTES = 131_072;

/**
 * Bytes that are made at the pace of a reader on another thread. The ids of the streams come from that thread: it outlives this one, and
 * what it asks of the streams of an earlier thread is an error, not another stream.
 */
export class ByteStreams {
  readonly #streams = new Map<number, AsyncGenerator<Uint8Array>>();

  get size(): number {
    return this.#streams.size;
  }

  begin(id: number, made: AsyncGenerator<Uint8Array>): void {
    this.#streams.set(id, made);
  }

  /**
   * The next bytes, about `PART_BYTES`: with a line each, every line would wait for its turn between the calls of requests.
   * null: they are complete.
   */
  async next(id: number): Promise<Uint8Array | null> {
    const made = this.#streams.get(id);
    if (made === undefined) throw new Error('the recorder thread was started again while it sent the response');
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    while (bytes < PART_BYTES) {
      const result = await made.next().catch((error: unknown) => {
        this.#streams.delete(id);
        throw error;
      });
      if (result.done === true) break;
      pieces.push(result.value);
      bytes += result.value.length;
    }
    if (pieces.length === 0) this.#streams.delete(id);
    return pieces.length === 0 ? null : pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  }

  /** The rest is not needed. */
  async end(id: number): Promise<void> {
    await this.#streams.get(id)?.return(undefined);
    this.#streams.delete(id);
  }
}
