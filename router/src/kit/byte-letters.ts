/** GPT-2's letters for bytes: printable Latin-1 is unchanged, the others are moved above it, in their order. */
export const letterOfByte: readonly string[] = (() => {
  let moved = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const isItself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(isItself ? byte : moved++);
  });
})();
