import { stat } from 'node:fs';

/**
 * Stops this process, with the router, engines and clients in it, as SIGSTOP or a suspended machine does: what they wrote before waits in their
 * sockets, and timers are due before it is read.
 */
export const standStill = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** When a process is stopped that looks again and again, each time in a turn of the event loop after a timer: at any time, or between the two. */
export const stopTimes: readonly (readonly [when: string, call: (run: () => void) => void])[] = [
  ['was stopped', (run) => run()],
  ['was stopped between a timer and the turn after it', inATimersTurn],
];

/** Calls it before a callback that waits for the end of the current turn. */
function inATimersTurn(run: () => void): void {
  stat('.', () => {
    if (process.getActiveResourcesInfo().includes('Immediate')) run();
    else inATimersTurn(run);
  });
}
