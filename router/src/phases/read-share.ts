/**
 * Libuv 1.51 reads up to 32 times from one socket in a turn of the event loop, which is 2 MB. If the bytes are processed and not only
 * forwarded, other connections would wait too long.
 */
const SHARE_BYTES = 262_144;

/** How much of an answer is worked on before others have their turn. */
export class ReadShare {
  #bytes = 0;

  add(bytes: number): void {
    this.#bytes += bytes;
  }

  /** True: nothing more is to be read now; `resume` is called in the next turn. */
  isUsedUp(resume: () => void): boolean {
    if (this.#bytes < SHARE_BYTES) return false;
    this.#bytes = 0;
    setImmediate(resume);
    return true;
  }
}
