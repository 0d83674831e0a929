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
  /** As its pod was when that was last looked at. */
  readonly worker: PodWorker;
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
  /** Pods of which a mistake was told: once, not at each of their changes. */
  readonly #mistaken = new Set<string>();

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
    for (const id of this.#mistaken) if (!listed.has(id)) this.#mistaken.delete(id);
    this.apply(pods.map((pod) => ({ pod, isGone: false })));
  }

  apply(changes: readonly PodChange[]): void {
    for (const { pod, isGone } of changes) this.#note(pod, isGone);
    this.#settle();
  }

  #note(pod: Pod, isGone: boolean): void {
    const id = idOf(pod);
    const reading = isGone ? null : readPod(pod, this.#options);
    const mistake = reading?.standing === 'away' ? reading.mistake : undefined;
    if (mistake === undefined) this.#mistaken.delete(id);
    else if (!this.#mistaken.has(id)) {
      this.#mistaken.add(id);
      this.#warn(`pod ${pod.metadata?.name} is not added as a worker: it ${mistake}`);
    }
    if (reading === null || reading.standing === 'away') this.#wanted.delete(id);
    else if (reading.standing === 'ready' || isSameEngine(this.#wanted.get(id), reading.worker))
      this.#wanted.set(id, reading.worker);
    // Another one, and not ready there yet.
    else this.#wanted.delete(id);
  }

  #settle(): void {
    // Removals first: a new pod may have the address of an old one, and is another engine all the same.
    for (const [url, { podId, isOurs, worker: was }] of this.#places) {
      if (isSameEngine(this.#wanted.get(podId), was)) continue;
      this.#places.delete(url);
      if (isOurs) for (const worker of this.#fleet.named(url)) this.#fleet.remove(worker);
    }
    for (const [podId, worker] of this.#wanted) {
      const place = this.#places.get(worker.url);
      if (place === undefined) this.#places.set(worker.url, { podId, isOurs: this.#join(worker), worker });
      else if (place.podId === podId && place.isOurs) {
        this.#change(place.worker, worker);
        this.#places.set(worker.url, { ...place, worker });
      }
    }
  }

  /** Same address, same role. */
  #change(was: PodWorker, { url, labels, bootstrapPort }: PodWorker): void {
    for (const worker of this.#fleet.named(url)) {
      if (!isDeepStrictEqual(worker.labels, labels)) worker.labels = labels;
      // One that was set by hand stays, unless the pod tells another one.
      if (bootstrapPort !== was.bootstrapPort) worker.bootstrapPort = bootstrapPort;
    }
  }

  /** @returns whether there is a worker of the pod now. */
  #join({ url, role, bootstrapPort, labels }: PodWorker): boolean {
    if (this.#fleet.named(url).length > 0) {
      this.#warn(`pod ${labels['pod']} is at ${url}, the URL of an existing worker, which stays unchanged`);
      return false;
    }
    const worker = this.#fleet.add(url, { role, bootstrapPort, labels });
    if (typeof worker !== 'string') return true;
    this.#warn(`pod ${labels['pod']} is not added as a worker: ${worker}`);
    return false;
  }
}

/** At another address, or in another role, it was started anew. */
function isSameEngine(worker: PodWorker | undefined, other: PodWorker): boolean {
  return worker?.url === other.url && worker.role === other.role;
}

function idOf({ metadata }: Pod): string {
  return metadata?.uid ?? `${metadata?.namespace}/${metadata?.name}`;
}
