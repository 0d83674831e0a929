/**
 * Stops this process, with the router, engines and clients in it, as SIGSTOP or a suspended machine does: what they wrote before waits in their
 * sockets, and timers are due before it is read.
 */
export const standStill = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
