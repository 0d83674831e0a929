import type { Fleet } from '../fleet.ts';
import type { Worker } from '../worker.ts';
import type { Change } from './list-watch.ts';
import { type Pod, type PodOptions, type PodWorker, readPod } from './pod.ts';

/** A pod that is to run the engine at a URL. */
interface Wish {
  readonly podId: string;
  readonly isReady: boolean;
  /** As its pod was at the last look. */
  readonly worker: PodWorker;
}

/** The pod whose worker, or ranks of an engine, are at a URL. */
interface Claim extends Wish {
  /** Why the fleet has no worker for it; null: it has, or had one that a user removed. */
  readonly refusal: string | null;
}

/** Adds and removes the workers of pods. One that a user removed stays removed until its pod is replaced. */
export class PodWorkers {
  readonly #fleet: Fleet;
  #options: PodOptions;
  readonly #warn: (line: string) => void;
  /** Pods that are workers, by uid: a pod of the same name (StatefulSet) is another process. */
  readonly #wanted = new Map<string, readonly PodWorker[]>();
  readonly #ready = new Set<string>();
  readonly #claims = new Map<string, Claim>();
  /** Pods whose configuration error was logged. */
  readonly #mistaken = new Set<string>();

  constructor(fleet: Fleet, options: PodOptions, warn: (line: string) => void) {
    this.#fleet = fleet;
    this.#options = options;
    this.#warn = warn;
    fleet.onEvent((event, { engineUrl }) => {
      // Later, because the fleet is being changed.
      if (event === 'removed' && this.#claims.get(engineUrl)?.refusal != null) queueMicrotask(() => this.#settle());
    });
  }

  /** Workers that exist because of their pods. */
  get size(): number {
    return this.#fleet.workers.filter(({ podId, isKept }) => podId !== null && !isKept).length;
  }

  /** What pods mean from the next list on. */
  setOptions(options: PodOptions): void {
    this.#options = options;
  }

  /** The complete list of pods. */
  replace(pods: readonly Pod[]): void {
    const listed = new Set(pods.map(idOf));
    for (const id of this.#wanted.keys()) if (!listed.has(id)) this.#wanted.delete(id);
    for (const id of this.#ready) if (!listed.has(id)) this.#ready.delete(id);
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
    if (reading?.state === 'ready') this.#ready.add(id);
    else this.#ready.delete(id);
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
    const wishes = this.#wishes();
    // Removals first: a new pod may have the address of an old one, and is another engine.
    for (const [url, claim] of this.#claims) {
      if (isSame(claim, wishes.get(url))) continue;
      this.#claims.delete(url);
      for (const worker of this.#workersOf(claim)) {
        worker.podId = null;
        if (!worker.isKept) this.#fleet.remove(worker);
      }
    }
    for (const [url, wish] of wishes) {
      const claim = this.#claims.get(url);
      let refusal = null;
      if (claim === undefined || claim.refusal !== null) refusal = this.#add(wish, claim?.refusal ?? null);
      else this.#change(claim, wish.worker);
      this.#claims.set(url, { ...wish, refusal });
    }
  }

  /** By URL. Of several pods at one a ready one is there, and else the one that was: the other no longer has the address, or not yet. */
  #wishes(): Map<string, Wish> {
    const wishes = new Map<string, Wish>();
    const weight = (wish: Wish): number =>
      Number(wish.isReady) * 2 + Number(isSame(wish, this.#claims.get(wish.worker.url)));
    for (const [podId, workers] of this.#wanted) {
      for (const worker of workers) {
        const wish = { podId, isReady: this.#ready.has(podId), worker };
        const other = wishes.get(worker.url);
        if (other === undefined || weight(wish) > weight(other)) wishes.set(worker.url, wish);
      }
    }
    return wishes;
  }

  /** Not one that a user added after the pod's own was removed. */
  #workersOf({ podId, worker: { url } }: Wish): Worker[] {
    return this.#fleet.named(url).filter((worker) => worker.podId === podId);
  }

  /** The same address and role. What a user set stays, unless the pod's own value changes. */
  #change(claim: Claim, { labels, bootstrapPort }: PodWorker): void {
    const { worker: was } = claim;
    const changed = new Set(
      Object.keys({ ...was.labels, ...labels }).filter((name) => was.labels[name] !== labels[name]),
    );
    for (const worker of this.#workersOf(claim)) {
      if (worker.isKept) continue;
      if (changed.size > 0) {
        const kept = Object.entries(worker.labels).filter(([name]) => !changed.has(name));
        const own = Object.entries(labels).filter(([name]) => changed.has(name));
        this.#fleet.setLabels(worker, Object.fromEntries([...kept, ...own]));
      }
      if (bootstrapPort !== was.bootstrapPort) worker.bootstrapPort = bootstrapPort;
    }
  }

  /** @param before why it was refused before. @returns why the pod's worker can't be added; null: it is in the fleet */
  #add({ podId, worker: { url, role, bootstrapPort, labels } }: Wish, before: string | null): string | null {
    const there = this.#fleet.named(url);
    if (there.some((worker) => worker.role === role)) {
      for (const worker of there) worker.podId = podId;
      this.#warn(`pod ${labels['pod']} is at ${url}, the URL of an existing worker, which stays unchanged`);
      return null;
    }
    const worker = this.#fleet.add(url, { role, bootstrapPort, labels, podId });
    if (typeof worker !== 'string') return null;
    if (worker !== before) this.#warn(`pod ${labels['pod']} is not added as a worker: ${worker}`);
    return worker;
  }
}

/** The same engine. */
const isSame = (a: Wish, b: Wish | undefined): boolean => a.podId === b?.podId && a.worker.role === b.worker.role;

/** Another address, port or role means another engine. */
function hasEngine(workers: readonly PodWorker[] | undefined, { url, role }: PodWorker): boolean {
  return workers?.some((worker) => worker.url === url && worker.role === role) ?? false;
}

function idOf({ metadata }: Pod): string {
  return metadata?.uid ?? `${metadata?.namespace}/${metadata?.name}`;
}
