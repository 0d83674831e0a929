/**
 * Unix ms, counted on from the clock as it was when the thread started: a clock that is set moves no deadline and no lease. Records have these
 * times for the next process, which counts on from its own start.
 */
export const feedNow = (): number => Math.round(performance.timeOrigin + performance.now());
