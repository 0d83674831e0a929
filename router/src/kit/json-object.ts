type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** @returns a string: why the text is not a JSON object */
export function readObject(text: string): JsonObject | string {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : 'The body has to be a JSON object.';
  } catch (error) {
    return `The body is not JSON: ${(error as Error).message}`;
  }
}

/** @returns null: the text is not a JSON object */
export function objectIn(text: string): JsonObject | null {
  const read = readObject(text);
  return typeof read === 'string' ? null : read;
}
