import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../../kit/rng.ts';
import type { KubeAccess } from './kube-access.ts';
import { KubeError, getLines } from './kube-api.ts';
import { type KubeObject, type ObjectQuery, kindOf, listObjects, pathOf } from './list-objects.ts';
import { backoff } from '../../kit/backoff.ts';

/** An object at one moment, as the API server reports it. */
export interface Change<T> {
  readonly object: T;
  /** Deleted, or no longer selected. */
  readonly isGone: boolean;
}

export interface ObjectListener<T> {
  /** The complete list. */
  onList(objects: readonly T[]): void;
  onChanges(changes: readonly Change<T>[]): void;
  onConnected(): void;
  /** Until the next list, the last known objects are all that is known. */
  onLost(error: Error): void;
}

/** The API server ends a watch after one to two times this, so that a silently broken watch is detected. */
const WATCH_SECS = 120;
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 30_000;
const LONGEST_ASKED_WAIT_MS = 60_000;
const FORGIVEN = 3;

interface WatchEvent<T> {
  readonly type?: string;
  readonly object?: T & { readonly code?: number; readonly message?: string };
}

/** The wait after this many failures in a row. The jitter is for an API server that returns to many clients. */
export function waitMs(failures: number, random: number): number {
  return failures <= 0 ? 0 : backoff(failures, FIRST_WAIT_MS, LONGEST_WAIT_MS) * (0.5 + random);
}

/**
 * Follows the objects of a selector: lists them, watches from there, resumes where a watch ended, and lists again when the
 * API server has forgotten that version (410) or the connection was lost. It never gives up.
 */
export class ListWatch<T extends KubeObject> {
  readonly #query: ObjectQuery;
  readonly #listener: ObjectListener<T>;
  readonly #random: Random;
  readonly #renew: () => Promise<KubeAccess>;
  readonly #stop = new AbortController();
  #access: KubeAccess;
  /** The version to watch from; null: list first. */
  #version: string | null = null;
  #failures = 0;

  /** @param renew reads the credentials again after a failure */
  constructor(
    access: KubeAccess,
    renew: () => Promise<KubeAccess>,
    query: ObjectQuery,
    listener: ObjectListener<T>,
    random: Random,
  ) {
    this.#access = access;
    this.#renew = renew;
    this.#query = query;
    this.#listener = listener;
    this.#random = random;
  }

  /** Resolves when closed; never rejects. */
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

  /** @returns how long to wait before the next attempt */
  async #fail(error: Error): Promise<number> {
    this.#failures++;
    // The next server may have another history: etcd can be restored from a backup.
    this.#version = null;
    const wait = waitMs(this.#failures, this.#random());
    // It forgets old versions as designed, so that is no outage unless it happens again and again.
    if (error instanceof KubeError && error.status === 410 && this.#failures <= FORGIVEN) return wait;
    this.#listener.onLost(error);
    try {
      this.#access = await this.#renew();
    } catch {
      // The old credentials stay; the failure itself is already reported.
    }
    const asked = error instanceof KubeError ? Math.min(error.retryAfterMs, LONGEST_ASKED_WAIT_MS) : 0;
    return Math.max(asked, wait);
  }

  /** @returns the version of the list */
  async #list(): Promise<string> {
    const { objects, version } = await listObjects(this.#access, this.#query, this.#stop.signal);
    if (this.#stop.signal.aborted) return version;
    this.#listener.onList(objects as T[]);
    return version;
  }

  /** Returns when the API server ended the watch normally; throws otherwise. */
  async #watch(from: string): Promise<void> {
    const secs = Math.round(WATCH_SECS * (1 + this.#random()));
    const path = `${pathOf(this.#query)}&watch=1&allowWatchBookmarks=true&resourceVersion=${from}&timeoutSeconds=${secs}`;
    const options = { signal: this.#stop.signal, silenceMs: (secs + 15) * 1000 };
    const sinceMs = performance.now();
    const isBrief = (): boolean => performance.now() - sinceMs < 1_000;
    try {
      for await (const events of getLines(this.#access, path, options)) {
        if (events.length === 0) this.#listener.onConnected();
        else this.#take(events as WatchEvent<T>[]);
      }
      // Watches that end at once again and again do not work.
      if (isBrief() && ++this.#failures > 1) throw new Error('watches end immediately');
    } finally {
      if (!isBrief()) this.#failures = 0;
    }
  }

  #take(events: readonly WatchEvent<T>[]): void {
    const changes: Change<T>[] = [];
    let failure: KubeError | null = null;
    for (const { type, object } of events) {
      if (type === 'ERROR') {
        failure = new KubeError(object?.code ?? 0, `${object?.code}: ${object?.message}`);
        break;
      }
      if (object === undefined) throw new Error(`an event without one of the ${kindOf(this.#query)}`);
      this.#version = object.metadata?.resourceVersion ?? this.#version;
      this.#failures = 0;
      if (type !== 'BOOKMARK') changes.push({ object, isGone: type === 'DELETED' });
    }
    if (changes.length > 0) this.#listener.onChanges(changes);
    if (failure !== null) throw failure;
  }
}
