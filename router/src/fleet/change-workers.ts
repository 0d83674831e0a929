import type { NamedWorker } from '../config/named-workers.ts';
import type { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';
import { readWorkerUrls } from './worker-url.ts';

/**
 * Compares the workers that the configuration names with those that it named before. Workers that others added or
 * removed stay as they are, and those that a pod runs stay for as long as their pod. Throws an error with a message for the user, also
 * for a worker that the fleet would refuse.
 * @returns what adds and removes the workers
 */
export function changeWorkers(
  fleet: Fleet,
  before: readonly NamedWorker[],
  wanted: readonly NamedWorker[],
): () => void {
  const old = new Map(before.flatMap(eachRank).map((named) => [keyOf(named), named]));
  const next = new Map(wanted.flatMap(eachRank).map((named) => [keyOf(named), named]));
  const leavers = () =>
    [...old.values()]
      .filter((named) => !next.has(keyOf(named)))
      .flatMap(({ url, role }) => fleet.named(url).filter((worker) => worker.role === role))
      .filter((worker) => !next.has(keyOf(worker)));
  const newcomers = [...next].flatMap(([key, named]) =>
    old.get(key)?.bootstrapPort === named.bootstrapPort ? [] : named,
  );
  /** Named in another role now, so the worker of its pod can't stay. */
  const isReplaced = (worker: Worker): boolean =>
    [...next.values()].some(({ url }) => fleet.named(url).includes(worker));
  const isOfPod = (worker: Worker): boolean => worker.podId !== null && !isReplaced(worker);
  const trial = fleet.copyWithout(leavers().filter((worker) => !isOfPod(worker)));
  for (const named of newcomers) add(trial, named);
  return () => {
    for (const worker of leavers()) {
      if (isOfPod(worker)) worker.isKept = false;
      else fleet.remove(worker);
    }
    for (const named of newcomers) add(fleet, named);
  };
}

function add(fleet: Fleet, { url, role, bootstrapPort, flag }: NamedWorker): void {
  const worker = fleet.add(url, { isOperators: true, role, bootstrapPort });
  if (typeof worker === 'string') throw new Error(`${flag}: ${worker}`);
}

/** The role belongs to the key, because an engine with another role is another worker. */
const keyOf = ({ url, role }: Pick<NamedWorker, 'url' | 'role'>): string => `${role} ${url}`;

function eachRank(named: NamedWorker): NamedWorker[] {
  const addresses = readWorkerUrls(named.url, null);
  if (typeof addresses === 'string') throw new Error(`${named.flag}: ${addresses}`);
  return addresses.map(({ url }) => ({ ...named, url }));
}
