import type { SessionName } from '../../shared/turn.ts';
import type { Base } from './packed-body.ts';
import { tenantKey } from '../../shared/tenant-key.ts';

const MAX_BYTES = 33_554_432;
/** How many bodies of a session are kept. */
const MAX_OF_SESSION = 3;

interface Bodies {
  readonly byId: Map<string, Base>;
  bytes: number;
}

/** The most recently stored or read requests of sessions, which the next ones usually extend. */
export class RecentBodies {
  readonly #sessions = new Map<string, Bodies>();
  #bytes = 0;

  get({ session, tenant = '' }: SessionName, id: string): Base | null {
    return this.#sessions.get(tenantKey(tenant, session))?.byId.get(id) ?? null;
  }

  add({ session, tenant = '' }: SessionName, base: Base): void {
    const name = tenantKey(tenant, session);
    const bodies = this.#sessions.get(name) ?? { byId: new Map<string, Base>(), bytes: 0 };
    this.#remove(name);
    bodies.bytes -= bodies.byId.get(base.id)?.body.length ?? 0;
    bodies.byId.delete(base.id);
    bodies.byId.set(base.id, base);
    bodies.bytes += base.body.length;
    if (bodies.byId.size > MAX_OF_SESSION) {
      const [oldest] = bodies.byId;
      bodies.byId.delete(oldest![0]);
      bodies.bytes -= oldest![1].body.length;
    }
    this.#sessions.set(name, bodies);
    this.#bytes += bodies.bytes;
    for (const each of this.#sessions.keys()) {
      if (this.#bytes <= MAX_BYTES) return;
      this.#remove(each);
    }
  }

  /** @param tenant undefined: of all tenants */
  forget(session: string, tenant: string | undefined): void {
    if (tenant !== undefined) this.#remove(tenantKey(tenant, session));
    else for (const name of this.#sessions.keys()) if (name.endsWith(session)) this.#remove(name);
  }

  #remove(name: string): void {
    this.#bytes -= this.#sessions.get(name)?.bytes ?? 0;
    this.#sessions.delete(name);
  }
}
