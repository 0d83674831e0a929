import { MemberFinder, scanMembers } from './json-scan.ts';

/** What takes the place of `bytes[start, end)`. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

/** Members by name: the JSON text of a value. */
export type Members = Readonly<Record<string, Buffer | string>>;

/** @returns `bytes` with all edits made, which overlap nowhere; the same buffer where there are none. */
export function edited(bytes: Buffer, edits: readonly Edit[]): Buffer {
  if (edits.length === 0) return bytes;
  const out: Buffer[] = [];
  let at = 0;
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    out.push(bytes.subarray(at, edit.start), edit.bytes);
    at = edit.end;
  }
  return Buffer.concat([...out, bytes.subarray(at)]);
}

/**
 * Sets members of the object in `bytes[start, end)`: a value takes the place of the one that counts (of several with one name the
 * last), what is not there comes at the end. All other bytes stay.
 * @returns null: there is no such object
 */
export function settingMembers(bytes: Buffer, start: number, end: number, members: Members): Edit[] | null {
  const names = Object.keys(members);
  const spans = new Int32Array(2 * names.length);
  const after = new MemberFinder(names).find(bytes, start, end, spans);
  if (after < 0) return null;
  const edits: Edit[] = [];
  const further: string[] = [];
  const texts: Buffer[] = [];
  for (const [i, name] of names.entries()) {
    const value = Buffer.from(members[name]!);
    if (spans[2 * i]! >= 0) edits.push({ start: spans[2 * i]!, end: spans[2 * i + 1]!, bytes: value });
    else {
      further.push(name);
      texts.push(Buffer.from(`${further.length > 1 ? ',' : ''}${JSON.stringify(name)}:`), value);
    }
  }
  if (texts.length === 0) return edits;
  const comma = isEmptyObject(bytes, start, end) ? '' : ',';
  return [...edits, { start: after - 1, end: after - 1, bytes: Buffer.concat([Buffer.from(comma), ...texts]) }];
}

/** As `settingMembers`, of a whole document. */
export function withMembers(body: Buffer, members: Members): Buffer | null {
  const edits = settingMembers(body, 0, body.length, members);
  return edits === null ? null : edited(body, edits);
}

function isEmptyObject(bytes: Buffer, start: number, end: number): boolean {
  let isEmpty = true;
  scanMembers(bytes, start, end, () => (isEmpty = false));
  return isEmpty;
}
