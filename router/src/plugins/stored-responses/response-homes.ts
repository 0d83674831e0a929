import type { StateMap } from '../../choose/state.ts';

/** Beyond this number, or this many characters of ids, the least recently used responses are forgotten. */
export const MAX_RESPONSES = 100_000;
const MAX_CHARS = 8_388_608;
/** Longer ids are not remembered; those of engines have 37 characters. */
const MAX_ID_CHARS = 256;

/** The URL of the worker that stored each response, kept over restarts in `state`. */
export class ResponseHomes {
  /** Least recently used first. */
  readonly #urls = new Map<string, string>();
  readonly #state: StateMap;
  readonly #limits: { readonly count: number; readonly chars: number };
  #chars = 0;

  constructor(state: StateMap, limits = { count: MAX_RESPONSES, chars: MAX_CHARS }) {
    this.#state = state;
    this.#limits = limits;
    for (const [id, url] of state.entries()) this.#put(id, url);
    this.#trim();
  }

  get size(): number {
    return this.#urls.size;
  }

  get(id: string): string | undefined {
    const url = this.#urls.get(id);
    if (url === undefined) return undefined;
    this.#urls.delete(id);
    this.#urls.set(id, url);
    return url;
  }

  set(id: string, url: string): void {
    if (id.length > MAX_ID_CHARS) return;
    this.#forget(id);
    this.#put(id, url);
    this.#state.set(id, url);
    this.#trim();
  }

  #put(id: string, url: string): void {
    this.#urls.set(id, url);
    this.#chars += id.length;
  }

  #forget(id: string): void {
    if (this.#urls.delete(id)) this.#chars -= id.length;
  }

  #trim(): void {
    for (const id of this.#urls.keys()) {
      if (this.#urls.size <= this.#limits.count && this.#chars <= this.#limits.chars) return;
      this.#forget(id);
      this.#state.delete(id);
    }
  }
}
