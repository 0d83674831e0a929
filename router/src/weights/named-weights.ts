const MARK = Buffer.from('"weight_version');
/** In a string of JSON its quotes have backslashes, so this is a member. */
const NAME = /^"weight_version"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)/;
const SPANS = /^"weight_versions"\s*:\s*(\[[^\]]*\])/;
/** Longer names and lists are not read. */
const MAX_BYTES = 4_096;

/** Finds what a response says of its weights (SGLang's `weight_version`, `weight_versions` of both engines), while it comes. */
export class NamedWeights {
  /** The last name; null: there was none. */
  last: string | null = null;
  readonly #onNew: (name: string) => void;
  readonly #seen = new Set<string>();
  /** May be the beginning of a member. */
  #rest: Buffer = Buffer.alloc(0);

  /** @param onNew called once for each name */
  constructor(onNew: (name: string) => void = () => {}) {
    this.#onNew = onNew;
  }

  push(bytes: Buffer, start: number, end: number): void {
    const part = bytes.subarray(start, end);
    const all = this.#rest.length === 0 ? part : Buffer.concat([this.#rest, part]);
    let from = Math.max(0, all.length - MARK.length + 1);
    for (let at = all.indexOf(MARK); at >= 0; at = all.indexOf(MARK, at + 1)) {
      const isRead = this.#read(all.toString('utf8', at, at + MAX_BYTES));
      if (isRead || all.length - at >= MAX_BYTES) continue;
      from = Math.min(from, at);
    }
    this.#rest = Buffer.from(all.subarray(from));
  }

  #read(text: string): boolean {
    const name = NAME.exec(text)?.[1];
    if (name !== undefined) this.#add(JSON.parse(name));
    const spans = name === undefined ? SPANS.exec(text)?.[1] : undefined;
    if (spans !== undefined) for (const { version } of spansIn(spans)) this.#add(version);
    return name !== undefined || spans !== undefined;
  }

  #add(value: unknown): void {
    const name = String(value);
    this.last = name;
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    this.#onNew(name);
  }
}

function spansIn(json: string): readonly { readonly version: unknown }[] {
  try {
    return JSON.parse(json) as { version: unknown }[];
  } catch {
    return [];
  }
}
