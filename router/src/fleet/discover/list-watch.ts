import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../../kit/rng.ts';
import type { KubeAccess } from './kube-access.ts';
import { KubeError, getLines } from './kube-api.ts';
import { type PodQuery, listPods, pathOf } from './list-pods.ts';
import type { Pod } from './pod.ts';
import type { PodChange } from './roster.ts';

/** Who hears of pods. */
export interface PodListener {
  /** These are all there are. */
  onList(pods: readonly Pod[]): void;
  onChanges(changes: readonly PodChange[]): void;
  onConnected(): void;
  /** What was told last is all that is known for now. */
  onLost(error: Error): void;
}

/** The API server ends a watch after so long, plus up to as much again: what was cut silently is found then. */
const WATCH_SECS = 120;
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 30_000;
const LONGEST_ASKED_WAIT_MS = 60_000;
const FORGIVEN = 3;

interface WatchEvent {
  readonly type?: string;
  readonly object?: Pod & { readonly code?: number; readonly message?: string };
}

/** The wait after so many failures in a row (1: the first); spread, since everybody comes back when an API server does. */
export function waitMs(failures: number, random: number): number {
  if (failures <= 0) return 0;
  return Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(failures - 1, 20)) * (0.5 + random);
}

/**
 * Knows the pods that a selector names: lists them, watches them from there, goes on where a watch ended, and lists anew when
 * the API server has forgotten that moment (410) or the connection was lost. It never gives up.
 */
export class ListWatch {
  readonly #pods: PodQuery;
  readonly #listener: PodListener;
  readonly #random: Random;
  readonly #renew: () => Promise<KubeAccess>;
  readonly #stop = new AbortController();
  #access: KubeAccess;
  /** From where to watch; null: list first. */
  #version: string | null = null;
  #failures = 0;

  /**
   * @param renew reads the credentials anew: after a failure they may be others
   */
  constructor(
    access: KubeAccess,
    renew: () => Promise<KubeAccess>,
    pods: PodQuery,
    listener: PodListener,
    random: Random,
  ) {
    this.#access = access;
    this.#renew = renew;
    this.#pods = pods;
    this.#listener = listener;
    this.#random = random;
  }

  /** Resolves when it was closed; never rejects. */
  async run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let leastMs = 0;
      try {
        this.#version ??= await this.#list();
        await this.#watch(this.#version);
        leastMs = waitMs(this.#failures, this.#random());
      } catch (error) {
        if (signal.aborted) return;
        leastMs = await this.#fail(error as Error);
      }
      await delay(leastMs, undefined, { signal }).catch(() => {});
    }
  }

  close(): void {
    this.#stop.abort();
  }

  /** @returns how long to wait before the next try. */
  async #fail(error: Error): Promise<number> {
    this.#failures++;
    // What was missed is in doubt, and who answers next may tell another history: etcd can come back from a backup.
    this.#version = null;
    const wait = waitMs(this.#failures, this.#random());
    // It forgot that moment, as it does: nothing is wrong with it, unless it forgets every moment.
    if (error instanceof KubeError && error.status === 410 && this.#failures <= FORGIVEN) return wait;
    this.#listener.onLost(error);
    try {
      this.#access = await this.#renew();
    } catch {
      // Then the old ones: the failure that matters is told already.
    }
    const asked = error instanceof KubeError ? Math.min(error.retryAfterMs, LONGEST_ASKED_WAIT_MS) : 0;
    return Math.max(asked, wait);
  }

  /** @returns the moment of the list. */
  async #list(): Promise<string> {
    const { pods, version } = await listPods(this.#access, this.#pods, this.#stop.signal);
    this.#listener.onList(pods);
    return version;
  }

  /** Returns when the API server ended the watch as it should; throws otherwise. */
  async #watch(from: string): Promise<void> {
    const secs = Math.round(WATCH_SECS * (1 + this.#random()));
    const path = `${pathOf(this.#pods)}&watch=1&allowWatchBookmarks=true&resourceVersion=${from}&timeoutSeconds=${secs}`;
    const options = { signal: this.#stop.signal, silenceMs: (secs + 15) * 1000 };
    const sinceMs = performance.now();
    const isBrief = (): boolean => performance.now() - sinceMs < 1_000;
    try {
      for await (const events of getLines(this.#access, path, options)) {
        if (events.length === 0) this.#listener.onConnected();
        else this.#take(events as WatchEvent[]);
      }
      // One that ends as it begins, over and over, is no watch.
      if (isBrief() && ++this.#failures > 1) throw new Error('watches end immediately');
    } finally {
      if (!isBrief()) this.#failures = 0;
    }
  }

  #take(events: readonly WatchEvent[]): void {
    const changes: PodChange[] = [];
    let failure: KubeError | null = null;
    for (const { type, object } of events) {
      if (type === 'ERROR') {
        failure = new KubeError(object?.code ?? 0, `${object?.code}: ${object?.message}`);
        break;
      }
      if (object === undefined) throw new Error('an event without a pod');
      this.#version = object.metadata?.resourceVersion ?? this.#version;
      this.#failures = 0;
      if (type !== 'BOOKMARK') changes.push({ pod: object, isGone: type === 'DELETED' });
    }
    if (changes.length > 0) this.#listener.onChanges(changes);
    if (failure !== null) throw failure;
  }
}
