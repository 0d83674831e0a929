/** Lists come separated by spaces, commas or both. */
export const splitList = (parts: readonly string[]): string[] =>
  parts.flatMap((part) => part.split(/[\s,]+/)).filter((part) => part !== '');
