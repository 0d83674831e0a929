import { isDeepStrictEqual } from 'node:util';
import type { Fleet } from '../fleet.ts';
import { type Pod, type PodOptions, type PodWorker, readPod } from './pod.ts';

/** A pod as the API server tells of it, at one moment. */
export interface PodChange {
  readonly pod: Pod;
  /** Gone, or without the labels that were asked for. */
  readonly isGone: boolean;
}

/** Whose pod a worker, or the ranks of an engine, are. */
interface Place {
  readonly podId: string;
  /** False: the URL was somebody else's already, or can't be a worker; discovery leaves it alone. */
  readonly isOurs: boolean;
}

/**
 * Keeps the workers of pods: adds and removes those, and no others. A worker that was taken away by hand stays away until
 * its pod is another one.
 */
export class Roster {
  readonly #fleet: Fleet;
  readonly #options: PodOptions;
  readonly #warn: (line: string) => void;
  /** Pods that are workers, by uid: a pod of the same name (StatefulSet) is another process. */
  readonly #wanted = new Map<string, PodWorker>();
  readonly #places = new Map<string, Place>();

  constructor(fleet: Fleet, options: PodOptions, warn: (line: string) => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#warn = warn;
  }

  /** Workers that are there because of their pods. */
  get size(): number {
    let count = 0;
    for (const [url, { isOurs }] of this.#places) if (isOurs) count += this.#fleet.named(url).length;
    return count;
  }

  /** These are all pods there are. */
  replace(pods: readonly Pod[]): void {
    const listed = new Set(pods.map(idOf));
    for (const id of this.#wanted.keys()) if (!listed.has(id)) this.#wanted.delete(id);
    this.apply(pods.map((pod) => ({ pod, isGone: false })));
  }

  apply(changes: readonly PodChange[]): void {
    for (const { pod, isGone } of changes) this.#note(pod, isGone);
    this.#settle();
  }

  #note(pod: Pod, isGone: boolean): void {
    const id = idOf(pod);
    const reading = isGone ? null : readPod(pod, this.#options);
    if (reading === null || reading.standing === 'away') this.#wanted.delete(id);
    else if (reading.standing === 'ready' || this.#wanted.get(id)?.url === reading.worker.url)
      this.#wanted.set(id, reading.worker);
    // Another address, and not ready there yet.
    else this.#wanted.delete(id);
  }

  #settle(): void {
    // Removals first: a new pod may have the address of an old one, and is another engine all the same.
    for (const [url, { podId, isOurs }] of this.#places) {
      if (this.#wanted.get(podId)?.url === url) continue;
      this.#places.delete(url);
      if (isOurs) for (const worker of this.#fleet.named(url)) this.#fleet.remove(worker);
    }
    for (const [podId, wanted] of this.#wanted) {
      const place = this.#places.get(wanted.url);
      if (place === undefined) this.#places.set(wanted.url, { podId, isOurs: this.#join(wanted) });
      else if (place.podId === podId && place.isOurs) this.#relabel(wanted);
    }
  }

  #relabel({ url, labels }: PodWorker): void {
    for (const worker of this.#fleet.named(url)) {
      if (!isDeepStrictEqual(worker.labels, labels)) worker.labels = labels;
    }
  }

  /** @returns whether there is a worker of the pod now. */
  #join({ url, labels }: PodWorker): boolean {
    if (this.#fleet.named(url).length > 0) {
      this.#warn(`pod ${labels['pod']} is at ${url}, where a worker was before: it stays as it was`);
      return false;
    }
    const worker = this.#fleet.add(url, { labels });
    if (typeof worker !== 'string') return true;
    this.#warn(`pod ${labels['pod']} is no worker: ${worker}`);
    return false;
  }
}

function idOf({ metadata }: Pod): string {
  return metadata?.uid ?? `${metadata?.namespace}/${metadata?.name}`;
}
