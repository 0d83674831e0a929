/**
 * Throws an error of the router's own code outside of the present callback, where the process reports it. What caught the error
 * can then end the request or connection that it belongs to.
 */
export const throwLater = (error: unknown): void =>
  queueMicrotask(() => {
    throw error;
  });
