import { tenantKey } from '../../../classify/tenant-key.ts';
import type { ChatName } from '../../shared/turn.ts';
import type { TurnWriter } from '../store/writer.ts';

/** How many stopped sessions are known: their last turns come within seconds. */
const MAX_STOPPED = 100_000;
const LABEL = 'cancelled';

/** The label of sessions that were stopped. Often their only turn is what came until then of a stream, and is stored after the stop. */
export class CancelledLabels {
  readonly #writer: TurnWriter;
  /** The oldest first. */
  readonly #stopped = new Set<string>();
  /** Stopped sessions that may have turns and lack the label. */
  readonly #unlabelled = new Map<string, ChatName>();

  constructor(writer: TurnWriter) {
    this.#writer = writer;
  }

  stopped(name: ChatName): void {
    const key = tenantKey(name.tenant, name.session);
    this.#unlabelled.set(key, name);
    this.#stopped.add(key);
    if (this.#stopped.size <= MAX_STOPPED) return;
    const [oldest] = this.#stopped;
    this.#stopped.delete(oldest!);
  }

  /** A turn is on its way to the store. */
  turnPut({ session, tenant }: ChatName): void {
    const key = tenantKey(tenant, session);
    if (this.#stopped.has(key)) this.#unlabelled.set(key, { session, tenant });
  }

  /** Labels the sessions whose turns are stored. A store that is away gets the labels later. */
  async write(nowMs: number): Promise<void> {
    const { store } = this.#writer;
    for (const [key, { session, tenant }] of this.#unlabelled) {
      if (this.#writer.waiting(session, tenant).length > 0) continue;
      // Another turn may be put in the meantime.
      this.#unlabelled.delete(key);
      try {
        const [head] = await store.sessions({ session, tenant, limit: 1 });
        const labels = new Set(head?.outcome?.labels).add(LABEL);
        if (head !== undefined) await store.finish({ session, tenant }, { labels: [...labels] }, nowMs);
      } catch {
        this.#unlabelled.set(key, { session, tenant });
        return;
      }
    }
  }
}
