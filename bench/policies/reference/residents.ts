/** Which engine each open session lives at, and how much memory that is. */
export class Residents {
  /** Tokens charged to each engine. */
  readonly charged: number[];
  readonly members: Set<string>[];
  readonly #homes = new Map<string, { engine: number; tokens: number }>();
  /** Order in which sessions were first placed. */
  readonly #ages = new Map<string, number>();
  #placed = 0;

  constructor(engines: number) {
    this.charged = Array.from({ length: engines }, () => 0);
    this.members = this.charged.map(() => new Set<string>());
  }

  home(sessionId: string): number | undefined {
    return this.#homes.get(sessionId)?.engine;
  }

  tokens(sessionId: string): number {
    return this.#homes.get(sessionId)?.tokens ?? 0;
  }

  age(sessionId: string): number {
    return this.#ages.get(sessionId) ?? 0;
  }

  enter(sessionId: string, engine: number, tokens: number): void {
    this.#homes.set(sessionId, { engine, tokens });
    this.charged[engine]! += tokens;
    this.members[engine]!.add(sessionId);
    if (!this.#ages.has(sessionId)) this.#ages.set(sessionId, ++this.#placed);
  }

  leave(sessionId: string): void {
    const home = this.#homes.get(sessionId);
    if (home === undefined) return;
    this.#homes.delete(sessionId);
    this.charged[home.engine]! -= home.tokens;
    this.members[home.engine]!.delete(sessionId);
  }

  /** The session is over. */
  forget(sessionId: string): void {
    this.leave(sessionId);
    this.#ages.delete(sessionId);
  }

  /** Charges a session that turned out to be larger. */
  grow(sessionId: string, tokens: number): void {
    const home = this.#homes.get(sessionId);
    if (home === undefined || tokens <= home.tokens) return;
    this.charged[home.engine]! += tokens - home.tokens;
    home.tokens = tokens;
  }

  isYoungest(sessionId: string, engine: number): boolean {
    const age = this.age(sessionId);
    for (const member of this.members[engine]!) if (this.age(member) > age) return false;
    return true;
  }
}
