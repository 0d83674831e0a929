import { headerKeyText } from '../classify/routing-keys.ts';
import { tenantKey } from '../classify/tenant-key.ts';
import { cacheUseOf } from '../engines/generation.ts';
import type { BodyThread } from '../forward/body-calls.ts';
import type { Plugin } from '../plugin.ts';
import type { EngineTable } from './engine-table.ts';

/**
 * Sessions whose namespace is kept, for each engine: at least so many, and at most twice as many. Of the others those that were not used
 * for longest are forgotten and count as new.
 */
const KEPT = 32_768;

/** How a swap left the namespaces of prompt caches. */
export interface NamespaceStep {
  /** The number of the swap in its ledger. */
  readonly seq: number;
  /** The namespace of new sessions from this swap on; '' before the first reset. */
  readonly namespace: string;
  /** The last swap up to this one that reset all sessions; 0: none. */
  readonly resetAllSeq: number;
}

/** The namespaces of one engine's prompt cache: one for new sessions, and those in which older sessions go on. */
export class Namespaces {
  #step: NamespaceStep = { seq: 0, namespace: '', resetAllSeq: 0 };
  /** By session: those used lately, and those used before these. */
  #pins = new Map<string, string>();
  #olderPins = new Map<string, string>();

  /** The last swap that left no later request anything of what is cached; 0: none. */
  get resetAllSeq(): number {
    return this.#step.resetAllSeq;
  }

  /** The engine has loaded the weights of this swap. */
  apply(step: NamespaceStep): void {
    // The engine may have missed the swap that reset all sessions.
    if (step.resetAllSeq > this.#step.seq) {
      this.#pins.clear();
      this.#olderPins.clear();
    }
    this.#step = step;
  }

  /** @param session '' for a session of its own */
  of(session: string): string {
    const { namespace } = this.#step;
    if (session === '') return namespace;
    const pinned = this.#pins.get(session) ?? this.#olderPins.get(session) ?? namespace;
    this.#pins.set(session, pinned);
    if (this.#pins.size >= KEPT) {
      this.#olderPins = this.#pins;
      this.#pins = new Map();
    }
    return pinned;
  }
}

/** The session that a reset with `new_session` leaves its prompt cache to. Other session headers do not count for that. */
const SESSION_HEADER = 'x-multi-turn-session-id';

/**
 * Sets the prompt-cache namespace of each attempt: at the last moment, because a request that was held during a swap must get the one
 * after it. The last plugin that changes a body.
 */
export const cacheNamespace = (engines: EngineTable, thread: BodyThread): Plugin => ({
  name: 'prompt-cache-namespace',
  appliesTo: ({ isGeneration, path, head }) => isGeneration && cacheUseOf(head.method, path) !== 'nothing',
  requestBody(x, body, worker) {
    const named = headerKeyText(x.head.get(SESSION_HEADER) ?? '');
    // Two tenants may have sessions of one name.
    const session = named === '' ? '' : tenantKey(x.tenant, named);
    // Of a pair both engines keep the prompt, under the one key of the request.
    const workers = x.placement?.legs.map((leg) => leg.worker) ?? [worker];
    const namespaces = new Set(workers.map((each) => engines.find(each)?.namespaces.of(session) ?? ''));
    // No other plugin keeps a large body.
    return thread.run('withNamespace', body, engines.find(worker)?.kind ?? null, [...namespaces].join(' '));
  },
});
