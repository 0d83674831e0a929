import type { SessionName } from '../turn.ts';
import type { Base, Field } from './packed-body.ts';

const MAX_BYTES = 33_554_432;
/** Of a session: requests and answers of its last turns. */
const MAX_OF_SESSION = 6;

interface Bodies {
  readonly byName: Map<string, Base>;
  bytes: number;
}

/** The bodies of sessions that were put or read last: the next ones are mostly changes of them. */
export class RecentBodies {
  readonly #sessions = new Map<string, Bodies>();
  #bytes = 0;

  get({ session, tenant = '' }: SessionName, field: Field, id: string): Base | null {
    return this.#sessions.get(nameOf(session, tenant))?.byName.get(field + id) ?? null;
  }

  add({ session, tenant = '' }: SessionName, field: Field, base: Base): void {
    const name = nameOf(session, tenant);
    const bodies = this.#sessions.get(name) ?? { byName: new Map<string, Base>(), bytes: 0 };
    this.#remove(name);
    bodies.bytes -= bodies.byName.get(field + base.id)?.body.length ?? 0;
    bodies.byName.delete(field + base.id);
    bodies.byName.set(field + base.id, base);
    bodies.bytes += base.body.length;
    if (bodies.byName.size > MAX_OF_SESSION) {
      const [oldest] = bodies.byName;
      bodies.byName.delete(oldest![0]);
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
    if (tenant !== undefined) this.#remove(nameOf(session, tenant));
    else for (const name of this.#sessions.keys()) if (name.endsWith(session)) this.#remove(name);
  }

  #remove(name: string): void {
    this.#bytes -= this.#sessions.get(name)?.bytes ?? 0;
    this.#sessions.delete(name);
  }
}

const nameOf = (session: string, tenant: string): string => `${tenant.length}:${tenant}${session}`;
