/** A part of a path or query, decoded; as it is where that is not possible. */
export function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
