import type { Fleet } from '../fleet.ts';
import type { Change } from './list-watch.ts';
import { type Pod, type PodOptions, type PodWorker, readPod } from './pod.ts';

/** The pod that a worker, or the ranks of an engine, belong to. */
interface Claim {
  readonly podId: string;
  /** False: the URL was already used or is not valid, so discovery leaves it alone. */
  readonly isOurs: boolean;
  /** As its pod was at the last look. */
  readonly worker: PodWorker;
}

/** Adds and removes the workers of pods. One that a user removed stays removed until its pod is replaced. */
export class PodWorkers {
  readonly #fleet: Fleet;
  #options: PodOptions;
  readonly #warn: (line: string) => void;
  /** Pods that are workers, by uid: a pod of the same name (StatefulSet) is another process. */
  readonly #wanted = new Map<string, readonly PodWorker[]>();
  readonly #claims = new Map<string, Claim>();
  /** Pods whose configuration error was logged. */
  readonly #mistaken = new Set<string>();

  constructor(fleet: Fleet, options: PodOptions, warn: (line: string) => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#warn = warn;
  }

  /** Workers that exist because of their pods. */
  get size(): number {
    let count = 0;
    for (const [url, { isOurs }] of this.#claims) if (isOurs) count += this.#fleet.named(url).length;
    return count;
  }

  /** What pods mean from the next list on. */
  setOptions(options: PodOptions): void {
    this.#options = options;
  }

  /** The complete list of pods. */
  replace(pods: readonly Pod[]): void {
    const listed = new Set(pods.map(idOf));
    for (const id of this.#wanted.keys()) if (!listed.has(id)) this.#wanted.delete(id);
    for (const id of this.#mistaken) if (!listed.has(id)) this.#mistaken.delete(id);
    this.apply(pods.map((object) => ({ object, isGone: false })));
  }

  apply(changes: readonly Change<Pod>[]): void {
    for (const { object, isGone } of changes) this.#note(object, isGone);
    this.#settle();
  }

  #note(pod: Pod, isGone: boolean): void {
    const id = idOf(pod);
    const reading = isGone ? null : readPod(pod, this.#options);
    const mistake = reading?.state === 'away' ? reading.mistake : undefined;
    if (mistake === undefined) this.#mistaken.delete(id);
    else if (!this.#mistaken.has(id)) {
      this.#mistaken.add(id);
      this.#warn(`pod ${pod.metadata?.name} is not added as a worker: it ${mistake}`);
    }
    if (reading === null || reading.state === 'away') this.#wanted.delete(id);
    else if (reading.state === 'ready') this.#wanted.set(id, reading.workers);
    // Another engine that is not ready yet is left out.
    else
      this.#wanted.set(
        id,
        reading.workers.filter((worker) => hasEngine(this.#wanted.get(id), worker)),
      );
  }

  #settle(): void {
    // Removals first: a new pod may have the address of an old one, and is another engine.
    for (const [url, { podId, isOurs, worker: was }] of this.#claims) {
      if (hasEngine(this.#wanted.get(podId), was)) continue;
      this.#claims.delete(url);
      if (isOurs) for (const worker of this.#fleet.named(url)) this.#fleet.remove(worker);
    }
    const wanted = Array.from(this.#wanted, ([podId, workers]) => workers.map((worker) => ({ podId, worker }))).flat();
    for (const { podId, worker } of wanted) {
      const claim = this.#claims.get(worker.url);
      if (claim === undefined) this.#claims.set(worker.url, { podId, isOurs: this.#add(worker), worker });
      else if (claim.podId === podId && claim.isOurs) {
        this.#change(claim.worker, worker);
        this.#claims.set(worker.url, { ...claim, worker });
      }
    }
  }

  /** The same address and role. What a user set stays, unless the pod's own value changes. */
  #change(was: PodWorker, { url, labels, bootstrapPort }: PodWorker): void {
    const changed = new Set(
      Object.keys({ ...was.labels, ...labels }).filter((name) => was.labels[name] !== labels[name]),
    );
    for (const worker of this.#fleet.named(url)) {
      if (changed.size > 0) {
        const kept = Object.entries(worker.labels).filter(([name]) => !changed.has(name));
        const own = Object.entries(labels).filter(([name]) => changed.has(name));
        this.#fleet.setLabels(worker, Object.fromEntries([...kept, ...own]));
      }
      if (bootstrapPort !== was.bootstrapPort) worker.bootstrapPort = bootstrapPort;
    }
  }

  /** @returns whether the pod's worker was added */
  #add({ url, role, bootstrapPort, labels }: PodWorker): boolean {
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

/** Another address, port or role means another engine. */
function hasEngine(workers: readonly PodWorker[] | undefined, { url, role }: PodWorker): boolean {
  return workers?.some((worker) => worker.url === url && worker.role === role) ?? false;
}

function idOf({ metadata }: Pod): string {
  return metadata?.uid ?? `${metadata?.namespace}/${metadata?.name}`;
}
