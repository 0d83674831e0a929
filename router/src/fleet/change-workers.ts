import type { NamedWorker } from '../config/named-workers.ts';
import type { Fleet } from './fleet.ts';
import { readWorkerUrl } from './worker.ts';

/** Adds a worker that the configuration names. Throws, in words for the user, when it can't be one. */
export function addNamed(fleet: Fleet, { url, role, bootstrapPort, flag }: NamedWorker): void {
  const worker = fleet.add(url, { isOperators: true, role, bootstrapPort });
  if (typeof worker === 'string') throw new Error(`${flag}: ${worker}`);
}

/**
 * Compares the workers that the configuration names with those that it named before; what others added or removed since is
 * left as it is. Throws, in words for the user, when one of them can't be a worker.
 * @returns what adds and removes them
 */
export function changeWorkers(
  fleet: Fleet,
  before: readonly NamedWorker[],
  wanted: readonly NamedWorker[],
): () => void {
  const old = new Map(before.map((named) => [keyOf(named), named]));
  const next = new Map(wanted.map((named) => [keyOf(named), named]));
  return () => {
    for (const [key, { url }] of old) {
      const worker = next.has(key) ? undefined : fleet.get(url);
      if (worker !== undefined) fleet.remove(worker);
    }
    for (const [key, named] of next) {
      if (!old.has(key) || old.get(key)!.bootstrapPort !== named.bootstrapPort) addNamed(fleet, named);
    }
  };
}

/** An engine that changes its role is another worker. */
function keyOf({ url, role, flag }: NamedWorker): string {
  const address = readWorkerUrl(url, null);
  if (typeof address === 'string') throw new Error(`${flag}: ${address}`);
  return `${role} ${address.url}`;
}
