import type { Policy, PolicyContext } from '../policy.ts';
import { WorkerRing } from '../worker-ring.ts';
import { leastInflight } from './least-inflight.ts';

/**
 * Sends all requests of a key to one worker, by a hash ring of the workers' URLs. While that worker is not eligible,
 * each of its keys goes to the key's own next worker on the ring. Without a key: least in flight.
 *
 * With `--hash-load-factor` no worker gets more than that many times its share of the requests in flight (consistent
 * hashing with bounded loads, Mirrokni et al. 2016): the rest goes to the next worker on the ring.
 */
export function consistentHash(context: PolicyContext): Policy {
  const { fleet } = context;
  const ring = new WorkerRing(fleet, context.options.hashLoadFactor ?? 0);
  const keyless = leastInflight(context);
  return {
    needs: 'key',
    hashes: ({ key }) => key !== null,
    close: () => ring.close(),
    whyMoved: () => ({ reason: (context.options.hashLoadFactor ?? 0) > 0 ? 'load' : 'ring' }),
    choose(x, workers) {
      const { key } = x;
      if (key === null) return keyless.choose(x, workers);
      const worker = ring.find(key.value, workers);
      // Read at each choice, because the log level may change.
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
