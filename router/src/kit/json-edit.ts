import { MemberFinder, keyIs, scanMembers } from './json-scan.ts';

const SP = 0x20;
const OPEN_OBJECT = 0x7b;

/** The JSON text of each value, by name. */
export type Members = Readonly<Record<string, Buffer | string>>;

/** Offsets of a member: of its key, with the quote, and of its value. */
export interface MemberPlace {
  readonly from: number;
  readonly valueStart: number;
  readonly to: number;
}

interface Change {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

/** Replaces parts of a JSON text; all other bytes stay. */
export class JsonEdit {
  readonly bytes: Buffer;
  readonly #changes: Change[] = [];

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  /** Parts must not overlap. `start` equal to `end` inserts. */
  replace(start: number, end: number, text: string | Buffer): void {
    this.#changes.push({ start, end, bytes: typeof text === 'string' ? Buffer.from(text) : text });
  }

  /**
   * Visits the members of the object at `start`.
   * @param each returns false for a member that is to be removed, with its comma
   * @returns the index after the object; -1: there is none
   */
  members(start: number, end: number, each: (is: (name: string) => boolean, place: MemberPlace) => boolean): number {
    const { bytes } = this;
    // Only the last member is remembered: a body may have millions.
    let last: MemberPlace | null = null;
    let hasKept = false;
    let isLastRemoved = false;
    const after = scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, to) => {
      const place = { from: keyStart - 1, valueStart, to };
      // No member before it stays, so its comma is the one after it.
      if (isLastRemoved && !hasKept) this.replace(last!.from, place.from, '');
      const stays = each((name) => keyIs(bytes, keyStart, keyEnd, name), place);
      if (!stays && hasKept) this.replace(last!.to, to, '');
      hasKept ||= stays;
      isLastRemoved = !stays;
      last = place;
    });
    if (isLastRemoved && !hasKept) this.replace(last!.from, last!.to, '');
    return after;
  }

  /**
   * Sets members of the object in `bytes[start, end)`. A value replaces the last one of that name, which is the one that counts; new
   * members are added at the end. Not together with `members` on the same object. @returns false: there is no object
   */
  set(start: number, end: number, members: Members): boolean {
    const names = Object.keys(members);
    const spans = new Int32Array(2 * names.length);
    const after = new MemberFinder(names).find(this.bytes, start, end, spans);
    if (after < 0) return false;
    const further: Members = Object.fromEntries(
      names.filter((_, i) => spans[2 * i]! < 0).map((name) => [name, members[name]!]),
    );
    for (const [i, name] of names.entries()) {
      if (spans[2 * i]! >= 0) this.replace(spans[2 * i]!, spans[2 * i + 1]!, members[name]!);
    }
    this.append(after - 1, further);
    return true;
  }

  /** Adds members before the closing brace at `close`, even if the object has members of these names. */
  append(close: number, members: Members): void {
    let before = close - 1;
    while (this.bytes[before]! <= SP) before--;
    let comma = this.bytes[before] === OPEN_OBJECT ? '' : ',';
    for (const [name, value] of Object.entries(members)) {
      this.replace(close, close, `${comma}${JSON.stringify(name)}:`);
      this.replace(close, close, value);
      comma = ',';
    }
  }

  get isEmpty(): boolean {
    return this.#changes.length === 0;
  }

  /** @returns the same buffer if nothing was changed */
  result(): Buffer {
    const { bytes } = this;
    if (this.isEmpty) return bytes;
    const out: Buffer[] = [];
    let at = 0;
    for (const change of this.#changes.toSorted((a, b) => a.start - b.start)) {
      out.push(bytes.subarray(at, change.start), change.bytes);
      at = change.end;
    }
    return Buffer.concat([...out, bytes.subarray(at)]);
  }
}

/** @returns null: the document is no JSON object */
export function withMembers(body: Buffer, members: Members): Buffer | null {
  const edit = new JsonEdit(body);
  return edit.set(0, body.length, members) ? edit.result() : null;
}

/** @param names in ASCII @returns the same buffer if it has none of them */
export function withoutMembers(body: Buffer, names: readonly string[]): Buffer {
  const edit = new JsonEdit(body);
  return edit.members(0, body.length, (is) => !names.some(is)) < 0 ? body : edit.result();
}
