import type { NamedWorker } from '../config/named-workers.ts';
import type { Fleet } from './fleet.ts';
import { readWorkerUrls } from './worker-url.ts';

/** Adds a worker that the configuration names. Throws an error with a message for the user. */
export function addNamed(fleet: Fleet, { url, role, bootstrapPort, flag }: NamedWorker): void {
  const worker = fleet.add(url, { isOperators: true, role, bootstrapPort });
  if (typeof worker === 'string') throw new Error(`${flag}: ${worker}`);
}

/**
 * Compares the workers that the configuration names with those that it named before. Workers that others added or
 * removed stay as they are. Throws an error with a message for the user.
 * @returns what adds and removes the workers
 */
export function changeWorkers(
  fleet: Fleet,
  before: readonly NamedWorker[],
  wanted: readonly NamedWorker[],
): () => void {
  const old = new Map(before.flatMap(eachRank).map((named) => [keyOf(named), named]));
  const next = new Map(wanted.flatMap(eachRank).map((named) => [keyOf(named), named]));
  return () => {
    for (const [key, named] of old) {
      if (next.has(key)) continue;
      for (const worker of fleet.named(named.url)) {
        if (!next.has(keyOf({ ...named, url: worker.url }))) fleet.remove(worker);
      }
    }
    for (const [key, named] of next) {
      if (!old.has(key) || old.get(key)!.bootstrapPort !== named.bootstrapPort) addNamed(fleet, named);
    }
  };
}

/** The role belongs to the key, because an engine with another role is another worker. */
const keyOf = ({ url, role }: NamedWorker): string => `${role} ${url}`;

function eachRank(named: NamedWorker): NamedWorker[] {
  const addresses = readWorkerUrls(named.url, null);
  if (typeof addresses === 'string') throw new Error(`${named.flag}: ${addresses}`);
  return addresses.map(({ url }) => ({ ...named, url }));
}
