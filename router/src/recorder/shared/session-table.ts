import { tenantKey } from '../../classify/tenant-key.ts';
import type { ChatName, SessionName } from './turn.ts';

/** How many sessions are remembered. */
const MAX_SESSIONS = 100_000;

/** A value for each session, in the order in which they were set. Of more than `MAX_SESSIONS` the oldest are forgotten. */
export class SessionTable<Value> {
  readonly #entries = new Map<string, { readonly name: ChatName; readonly value: Value }>();
  readonly #tenants = new Set<string>();

  get({ session, tenant }: ChatName): Value | null {
    return this.#entries.get(tenantKey(tenant, session))?.value ?? null;
  }

  set({ session, tenant }: ChatName, value: Value): void {
    const key = tenantKey(tenant, session);
    this.#tenants.add(tenant);
    this.#entries.delete(key);
    this.#entries.set(key, { name: { session, tenant }, value });
    if (this.#entries.size > MAX_SESSIONS) this.#entries.delete(this.#entries.keys().next().value!);
  }

  delete({ session, tenant }: SessionName): void {
    for (const each of tenant === undefined ? this.#tenants : [tenant]) this.#entries.delete(tenantKey(each, session));
  }

  /** As they are now: changes of the table do not change the list. */
  entries(): readonly { readonly name: ChatName; readonly value: Value }[] {
    return [...this.#entries.values()];
  }
}
