const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const CLOSE_ARRAY = 0x5d;
const CLOSE_OBJECT = 0x7d;

/**
 * The beginning of a JSON text, which may have other text before it, with what closes the string, lists and objects that are open: JSON as
 * well, where a string or a value was begun last.
 */
export function completed(beginning: Buffer): Buffer {
  const closers: string[] = [];
  let isInString = false;
  for (let at = Math.max(0, beginning.indexOf(OPEN_OBJECT)); at < beginning.length; at++) {
    const byte = beginning[at]!;
    if (isInString) {
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) isInString = false;
    } else if (byte === QUOTE) isInString = true;
    else if (byte === OPEN_OBJECT) closers.push('}');
    else if (byte === OPEN_ARRAY) closers.push(']');
    else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) closers.pop();
  }
  return Buffer.concat([beginning, Buffer.from((isInString ? '"' : '') + closers.toReversed().join(''))]);
}
