import { createRequire } from 'node:module';

/** Looks for the package without loading its native part. @returns a message for the user, or null if it is there */
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
