/**
 * Throws an error outside of the present callback, so that the process reports it, while the caller ends the request or connection of the
 * error.
 */
export const throwLater = (error: unknown): void =>
  queueMicrotask(() => {
    throw error;
  });
