// Loaded into the router: measures how long its event loop is held, and answers when it is asked.
import { isMainThread } from 'node:worker_threads';

if (isMainThread && process.send !== undefined) {
  let longestMs = 0;
  let lastMs = performance.now();
  // Busy all the time, so that every turn is seen.
  const spin = (): void => {
    const nowMs = performance.now();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
    setTimeout(spin, 0);
  };
  spin();
  process.on('message', () => {
    process.send!(longestMs);
    longestMs = 0;
    lastMs = performance.now();
  });
}
