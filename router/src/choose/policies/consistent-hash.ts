import type { Policy, PolicyContext } from '../policy.ts';
import { WorkerRing } from '../worker-ring.ts';
import { leastInflight } from './least-inflight.ts';

/**
 * All exchanges of a key to one worker, by a ring of the workers' URLs. While that worker is away its keys go to the next
 * one clockwise, each key to its own next. Without any key: least in flight.
 *
 * With `--hash-load-factor` no worker takes more than that many times its share of what is under way (consistent hashing
 * with bounded loads, Mirrokni et al. 2016): what it can't take goes to the next one clockwise.
 */
export function consistentHash(context: PolicyContext): Policy {
  const { fleet } = context;
  const ring = new WorkerRing(fleet, context.options.hashLoadFactor ?? 0);
  const keyless = leastInflight(context);
  return {
    needs: 'key',
    close: () => ring.close(),
    whyMoved: () => ({ reason: (context.options.hashLoadFactor ?? 0) > 0 ? 'load' : 'ring' }),
    choose(x, workers) {
      const { key } = x;
      if (key === null) return keyless.choose(x, workers);
      const worker = ring.find(key.value, workers);
      // Asked each time: the level of the log may change.
      const { trace } = context;
      if (trace !== null) {
        const text = `${key.source}:${key.value}`;
        if (key.source.startsWith('header:')) {
          trace(`Found session key in header '${key.source.slice(7)}': ${key.value}`);
        }
        trace(`Extracted hash key: ${text}`);
        trace(`Hash key '${text}' mapped to worker: ${worker.url}`);
        trace(
          `Consistent hash routing: key='${text}' -> worker='${worker.url}' (index=${fleet.workers.indexOf(worker)})`,
        );
      }
      return worker.alone;
    },
  };
}
