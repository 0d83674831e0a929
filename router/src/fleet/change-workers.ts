import type { Fleet } from './fleet.ts';
import { readWorkerUrl } from './worker.ts';

/**
 * Compares the workers that the configuration names with those that it named before; what others added or removed since is
 * left as it is. Throws, in words for the user, when one of them can't be a worker.
 * @returns what adds and removes them
 */
export function changeWorkers(fleet: Fleet, before: readonly string[], wanted: readonly string[]): () => void {
  const old = new Map(before.map((text) => [urlOf(text), text]));
  const next = new Map(wanted.map((text) => [urlOf(text), text]));
  return () => {
    for (const [url, text] of next) if (!old.has(url)) fleet.add(text, { isOperators: true });
    for (const [url, text] of old) {
      const worker = next.has(url) ? undefined : fleet.get(text);
      if (worker !== undefined) fleet.remove(worker);
    }
  };
}

function urlOf(text: string): string {
  const address = readWorkerUrl(text, null);
  if (typeof address === 'string') throw new Error(`--worker-urls: ${address}`);
  return address.url;
}
