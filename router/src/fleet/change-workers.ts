import type { Fleet } from './fleet.ts';
import { readWorkerUrls } from './worker-url.ts';

/**
 * Compares the workers that the configuration names with those that it named before; what others added or removed since is
 * left as it is. Throws, in words for the user, when one of them can't be a worker.
 * @returns what adds and removes them
 */
export function changeWorkers(fleet: Fleet, before: readonly string[], wanted: readonly string[]): () => void {
  const old = new Set(before.flatMap(urlsOf));
  const next = new Set(wanted.flatMap(urlsOf));
  return () => {
    for (const url of next) if (!old.has(url)) fleet.add(url, { isOperators: true });
    for (const url of old) {
      if (next.has(url)) continue;
      for (const worker of fleet.named(url)) if (!next.has(worker.url)) fleet.remove(worker);
    }
  };
}

/** One for each rank that it names. */
function urlsOf(text: string): string[] {
  const addresses = readWorkerUrls(text, null);
  if (typeof addresses === 'string') throw new Error(`--worker-urls: ${addresses}`);
  return addresses.map(({ url }) => url);
}
