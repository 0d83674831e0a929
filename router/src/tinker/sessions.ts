import { randomBytes } from 'node:crypto';
import type { StateMap } from '../choose/state.ts';

/** Where a sampling session's samples come from. */
export interface Source {
  readonly baseModel: string;
  /** `tinker://…`, or ''. */
  readonly modelPath: string;
  /** The weights of `modelPath` at engines; null: the model's own weights. */
  readonly adapter: Adapter | null;
  /** The snapshot that the model's weights must be; null: whatever engines have. */
  readonly snapshot: string | null;
}

/** A LoRA adapter: the name that engines know it by, and the directory that they read. */
export interface Adapter {
  readonly name: string;
  readonly directory: string;
  /** What the directory was unpacked from; null: nothing. */
  readonly archive: string | null;
}

export interface SamplingSession extends Source {
  readonly id: string;
  /** '' where it was learned from the trainer. */
  readonly session: string;
  readonly tenant: string;
}

interface Session {
  readonly tenant: string;
  lastMs: number;
}

const SWEEP_MS = 10_000;

/** Sessions and their sampling sessions. A restart of the router loses none that has not expired. */
export class Sessions {
  /** Called with an adapter that no sampling session has any more. */
  onUnused: (adapter: Adapter) => void = () => {};
  readonly #sessions = new Map<string, Session>();
  readonly #sampling = new Map<string, SamplingSession>();
  readonly #state: StateMap;
  readonly #timeoutMs: () => number;
  readonly #timer: NodeJS.Timeout;

  constructor(state: StateMap, timeoutMs: () => number) {
    this.#state = state;
    this.#timeoutMs = timeoutMs;
    for (const [id, text] of state.entries()) {
      const value = savedIn(text);
      if (value === null) continue;
      if ('baseModel' in value) this.#sampling.set(id, { ...value, snapshot: value.snapshot ?? null });
      else this.#sessions.set(id, { tenant: value.tenant, lastMs: performance.now() });
    }
    this.#timer = setInterval(() => this.#sweep(performance.now()), SWEEP_MS).unref();
  }

  get counts(): { readonly sessions: number; readonly sampling: number } {
    return { sessions: this.#sessions.size, sampling: this.#sampling.size };
  }

  /** Those of open sampling sessions. */
  get adapters(): Adapter[] {
    return Array.from(this.#sampling.values(), ({ adapter }) => adapter).filter((adapter) => adapter !== null);
  }

  open(tenant: string): string {
    const id = newId('session');
    this.claim(id, tenant);
    return id;
  }

  /** Opens a session that the trainer named, unless it is open. @returns false: it belongs to another key */
  claim(id: string, tenant: string): boolean {
    if (!this.#sessions.has(id)) {
      this.#sessions.set(id, { tenant, lastMs: performance.now() });
      this.#state.set(id, JSON.stringify({ tenant }));
    }
    return this.touch(id, tenant);
  }

  /** Whether a session, or a sampling session, with this id belongs to another key. */
  isOthers(id: string, tenant: string): boolean {
    const owner = (this.#sessions.get(id) ?? this.#sampling.get(id))?.tenant;
    return owner !== undefined && owner !== tenant;
  }

  /** A sign of life. @returns false: there is no such session */
  touch(id: string, tenant: string): boolean {
    const session = this.#sessions.get(id);
    if (session === undefined || session.tenant !== tenant) return false;
    session.lastMs = performance.now();
    return true;
  }

  close(id: string): void {
    this.#sessions.delete(id);
    this.#state.delete(id);
    const ended = [...this.#sampling.values()].filter(({ session }) => session === id);
    for (const sampling of ended) {
      this.#sampling.delete(sampling.id);
      this.#state.delete(sampling.id);
    }
    if (ended.length === 0) return;
    const used = new Set(Array.from(this.#sampling.values(), ({ adapter }) => adapter?.name));
    const unused = new Map(ended.map(({ adapter }) => [adapter?.name, adapter]));
    for (const [name, adapter] of unused) if (adapter !== null && !used.has(name)) this.onUnused(adapter);
  }

  /** @param id the trainer's, where the sampling session was born there */
  openSampling(session: string, tenant: string, source: Source, id = newId('sampling')): SamplingSession {
    const sampling = { id, session, tenant, ...source };
    this.#sampling.set(id, sampling);
    this.#state.set(id, JSON.stringify(sampling));
    return sampling;
  }

  sampling(id: string, tenant: string): SamplingSession | null {
    const sampling = this.#sampling.get(id);
    if (sampling === undefined || sampling.tenant !== tenant) return null;
    this.touch(sampling.session, tenant);
    return sampling;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #sweep(nowMs: number): void {
    for (const [id, { lastMs }] of this.#sessions) if (nowMs - lastMs > this.#timeoutMs()) this.close(id);
  }
}

/** null: a damaged disk left no session of it. */
function savedIn(text: string): SamplingSession | { readonly tenant: string } | null {
  try {
    const value = JSON.parse(text) as SamplingSession | { readonly tenant: string } | null;
    return typeof value?.tenant === 'string' ? value : null;
  } catch {
    return null;
  }
}

/** No `:` may be in it: that is what the routing key is split at. */
const newId = (kind: string): string => `${kind}_${randomBytes(8).toString('hex')}`;
