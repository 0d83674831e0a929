type JsonObject = Record<string, unknown>;

/**
 * Deeper values are refused. V8 copies values between threads, and writes JSON, recursively: that fails from about 3,000 levels on with
 * the default stack. FastAPI's parser, with which engines read requests, takes less than 1,000.
 */
export const MAX_LEVELS = 256;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Throws an error with a message for the caller. */
export function parseBody(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`The body is not JSON: ${(error as Error).message}`, { cause: error });
  }
  // Each level has at least two characters.
  if (text.length > 2 * MAX_LEVELS && isDeeper(value, MAX_LEVELS))
    throw new Error(`The body has lists or objects that are nested more than ${MAX_LEVELS} levels deep.`);
  return value;
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  for (const member of Array.isArray(value) ? value : Object.values(value))
    if (isDeeper(member, levels - 1)) return true;
  return false;
}

/** @returns a string: why the text is not a JSON object */
export function readObject(text: string): JsonObject | string {
  try {
    const value = parseBody(text);
    return isObject(value) ? value : 'The body has to be a JSON object.';
  } catch (error) {
    return (error as Error).message;
  }
}

/** @returns null: the text is not a JSON object */
export function objectIn(text: string): JsonObject | null {
  const read = readObject(text);
  return typeof read === 'string' ? null : read;
}
