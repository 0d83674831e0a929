import { type Edit, edited } from './json-edit.ts';
import { keyIs, scanMembers } from './json-scan.ts';

/** A member of an object: where its key (with the quote) and its value stand. */
export interface MemberPlace {
  readonly from: number;
  readonly valueStart: number;
  readonly to: number;
}

/** Changes places of a JSON text; every other byte stays as it is. */
export class JsonChanges {
  readonly bytes: Buffer;
  readonly #edits: Edit[] = [];

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  /** Places may not overlap. */
  replace(start: number, end: number, text: string | Buffer): void {
    this.#edits.push({ start, end, bytes: typeof text === 'string' ? Buffer.from(text) : text });
  }

  /**
   * Goes through the members of the object at `start`.
   * @param each answers false for one that is to go, its comma too
   * @returns the index after the object; -1: there is none
   */
  members(start: number, end: number, each: (is: (name: string) => boolean, place: MemberPlace) => boolean): number {
    const { bytes } = this;
    // Of all members only the last one is kept in mind: a body may have millions.
    let last: MemberPlace | null = null;
    let hasKept = false;
    let hasLastGone = false;
    const after = scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, to) => {
      const place = { from: keyStart - 1, valueStart, to };
      // Before all that stay: its comma is the one behind it.
      if (hasLastGone && !hasKept) this.replace(last!.from, place.from, '');
      const stays = each((name) => keyIs(bytes, keyStart, keyEnd, name), place);
      if (!stays && hasKept) this.replace(last!.to, to, '');
      hasKept ||= stays;
      hasLastGone = !stays;
      last = place;
    });
    if (hasLastGone && !hasKept) this.replace(last!.from, last!.to, '');
    return after;
  }

  get isEmpty(): boolean {
    return this.#edits.length === 0;
  }

  result(): Buffer {
    return edited(this.bytes, this.#edits);
  }
}

/** A document without the members of that name, which is ASCII; the same buffer where it has none. */
export function withoutMember(body: Buffer, name: string): Buffer {
  const changes = new JsonChanges(body);
  return changes.members(0, body.length, (is) => !is(name)) < 0 ? body : changes.result();
}
