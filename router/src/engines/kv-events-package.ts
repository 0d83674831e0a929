import { createRequire } from 'node:module';

/** Looks without loading: the package's native part comes with the first feed. @returns words for the user, null: it is there. */
export function whyNoKvEvents(
  resolve: (name: string) => string = createRequire(import.meta.url).resolve,
): string | null {
  try {
    resolve('zeromq');
    return null;
  } catch (error) {
    return lackOf(error);
  }
}

export function lackOf(error: unknown): string {
  const [reason] = (error as Error).message.split(/ imported from |\n/);
  return `KV cache events need the package zeromq, which can't be loaded (${reason}). Install it next to turnout: npm install zeromq. The package has binaries for Linux, macOS and Windows; on other systems it is built with CMake.`;
}
