import { groupOf, sessionOf } from '../../../classify/routing-keys.ts';
import type { Exchange } from '../../../exchange.ts';
import { shuttingDown } from '../../../forward/errors.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { StateKey } from '../../../phases/exchange-view.ts';
import { Refused } from '../../../plugin.ts';
import { type FeedOptions, type FeedVerdict, MAX_GROUP_SIZE } from '../../shared/feed.ts';
import { REWARD_HEADER, rewardIn } from '../../shared/outcome.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';
import type { ChatName } from '../../shared/turn.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import { whileHeld } from './moved.ts';

/** So many sessions are known by name: for others the thread is asked. */
const MAX_KNOWN = 200_000;

export interface GateParts {
  readonly thread: RecorderThread;
  readonly options: FeedOptions;
  readonly sessionHeaders: readonly string[];
  readonly inFlight: () => Iterable<Exchange>;
  /** The router stops: no consumer reaches it any more. */
  readonly isDraining: () => boolean;
  /** A session goes on whose group is over, or does not wait for it. */
  readonly onPast: (session: string) => void;
  /** The policies keep no place for the session any longer. */
  readonly endSession: (session: string, tenant: string) => void;
}

/** Lets requests of groups in, holds or refuses those that would begin a group too many, and stops those that no group waits for. */
export class FeedGate {
  readonly #parts: GateParts;
  /** Sessions that the thread was asked about, and whether they may go on. The oldest first. */
  readonly #known = new Map<string, 'admitted' | 'cancelled'>();
  /** Names of sessions that have ended. Their next requests ask the thread whether their groups are over. The oldest first. */
  readonly #ended = new Set<string>();
  /** Requests whose session is not known yet, and by which a group may begin: the key of its name. */
  readonly #announcing: StateKey<string> = {};
  /** How many of them are in flight, by that key. */
  readonly #inFlight = new Map<string, number>();
  /** Requests that wait for room, and what wakes each. */
  readonly #held = new Map<Exchange, () => void>();

  constructor(parts: GateParts) {
    this.#parts = parts;
  }

  get held(): number {
    return this.#held.size;
  }

  /** Whether the thread has to be asked about a request. */
  appliesTo(x: Exchange): boolean {
    if (!x.isGeneration) return false;
    if (x.head.get(REWARD_HEADER) !== undefined) return true;
    const session = this.#sessionOf(x);
    if (session === '' && groupOf(x) === '') return false;
    return session === '' || !this.#isKnown(x.tenant, session);
  }

  /** Resolves when the request may pass; rejects with its refusal. */
  async admit(x: Exchange): Promise<null> {
    const session = this.#sessionOf(x);
    const invalid = problemOfReward(x) ?? problemOfSize(x);
    if (invalid !== null) throw refused('bad_request', invalid);
    const key = tenantKey(x.tenant, session);
    if (session !== '' && this.#isKnown(x.tenant, session)) return null;
    // Its client has left: no group begins for it.
    if (x.outcome !== null) return null;
    if (session === '') this.#announce(x);
    const size = x.head.get('x-turnout-group-size');
    const entry = { tenant: x.tenant, session, group: groupOf(x), size: size === undefined ? null : Number(size) };
    for (let isAgain = false; ; isAgain = true) {
      const { thread } = this.#parts;
      const verdict: FeedVerdict = await whileHeld(thread, thread.ask('feedAdmit', { ...entry, isAgain }));
      if (verdict.kind === 'admitted' || verdict.kind === 'cancelled') this.#remember(key, verdict.kind);
      if (verdict.kind === 'admitted') {
        if (verdict.isPast) {
          this.#ended.delete(session);
          this.#parts.onPast(session);
        }
        return null;
      }
      if (verdict.kind === 'cancelled') throw refused('session_cancelled', verdict.message);
      if (verdict.kind === 'invalid') throw refused('bad_request', verdict.message);
      if (this.#parts.options.whenFull === 'refuse') throw refused('feed_full', verdict.message);
      if (this.#parts.isDraining()) throw new Refused(shuttingDown());
      if (x.outcome === null) await new Promise<void>((wake) => this.#held.set(x, wake));
      if (x.outcome !== null) return null;
    }
  }

  /** A worker is chosen: only now a session is known whose key is in the body. Throws the refusal of one that can be in no group. */
  chosen(x: Exchange): void {
    const session = this.#sessionOf(x);
    if (session === '' && x.isGeneration && groupOf(x) !== '') throw refused('bad_request', NO_SESSION);
    if (session === '' || this.#known.get(tenantKey(x.tenant, session)) !== 'cancelled') return;
    throw refused('session_cancelled', CANCELLED);
  }

  /** Requests that wait for room get none any more. */
  drain(): void {
    this.#wake();
  }

  /** @param full tenants that may begin no other group */
  roomFor(full: ReadonlySet<string>): void {
    // More than there is room for: some belong to one group.
    this.#wake(({ tenant }) => !full.has(tenant));
  }

  /** The request is over: it waits no more, and begins no group if it left no turn. */
  finished(x: Exchange): void {
    this.#held.get(x)?.();
    this.#held.delete(x);
    const key = x.state(this.#announcing);
    if (key === null) return;
    const left = this.#inFlight.get(key)! - 1;
    if (left > 0) return void this.#inFlight.set(key, left);
    this.#inFlight.delete(key);
    const name = { tenant: x.tenant, name: groupOf(x) };
    // The thread gets the turns of a truncated response first: the plugins that record them may learn of the end after this one.
    queueMicrotask(() => this.#parts.thread.tell('feedNotBegun', name));
  }

  #announce(x: Exchange): void {
    const name = groupOf(x);
    if (name === '') return;
    const key = tenantKey(x.tenant, name);
    x.setState(this.#announcing, key);
    this.#inFlight.set(key, (this.#inFlight.get(key) ?? 0) + 1);
  }

  /** Sessions that have ended, by the words of their clients. */
  ended(sessions: readonly string[]): void {
    for (const session of sessions) this.#ended.add(session);
    for (const oldest of this.#ended) {
      if (this.#ended.size <= MAX_KNOWN) return;
      this.#ended.delete(oldest);
    }
  }

  /** Ends the requests of sessions that no group waits for. */
  stop(sessions: readonly ChatName[]): void {
    if (sessions.length === 0) return;
    const keys = new Set(sessions.map(({ session, tenant }) => tenantKey(tenant, session)));
    for (const key of keys) this.#remember(key, 'cancelled');
    for (const { session, tenant } of sessions) this.#parts.endSession(session, tenant);
    const error = new RouterError('session_cancelled', CANCELLED);
    for (const x of this.#parts.inFlight()) {
      const session = sessionOf(x, this.#parts.sessionHeaders);
      if (session !== '' && keys.has(tenantKey(x.tenant, session))) x.ended(x, { kind: 'refused', error });
    }
  }

  /** The thread was started again, or another router has the feed: what the thread knew may be gone. */
  forget(): void {
    this.#known.clear();
  }

  close(): void {
    this.#wake();
  }

  #wake(isMeant: (x: Exchange) => boolean = () => true): void {
    for (const [x, wake] of this.#held) {
      if (!isMeant(x)) continue;
      this.#held.delete(x);
      wake();
    }
  }

  #sessionOf(x: Exchange): string {
    return sessionOf(x, this.#parts.sessionHeaders);
  }

  /** Whether requests of the session pass without a question to the thread. */
  #isKnown(tenant: string, session: string): boolean {
    return this.#known.get(tenantKey(tenant, session)) === 'admitted' && !this.#ended.has(session);
  }

  #remember(key: string, as: 'admitted' | 'cancelled'): void {
    if (key === tenantKey('', '')) return;
    this.#known.delete(key);
    this.#known.set(key, as);
    if (this.#known.size <= MAX_KNOWN) return;
    const [oldest] = this.#known.keys();
    this.#known.delete(oldest!);
  }
}

const CANCELLED = 'The group of this session has enough members, or its deadline has passed.';

const refused = (...error: ConstructorParameters<typeof RouterError>): Refused =>
  new Refused(new RouterError(...error));

function problemOfSize({ head }: Exchange): string | null {
  const size = head.get('x-turnout-group-size');
  const isSize = size === undefined || (/^\d{1,6}$/.test(size) && Number(size) >= 1 && Number(size) <= MAX_GROUP_SIZE);
  return isSize ? null : `x-turnout-group-size is a whole number from 1 to ${MAX_GROUP_SIZE}.`;
}

const NO_SESSION =
  'x-turnout-group needs a session key: send the header x-session-id. A key in the body is read by policies that keep sessions, as rollout.';

/** The header says something of a session that is over with this request. */
function problemOfReward(x: Exchange): string | null {
  const text = x.head.get(REWARD_HEADER);
  if (text === undefined) return null;
  if (rewardIn(text) === null) return `${REWARD_HEADER} is a number: 0.5, -1e-3.`;
  return x.isLastTurn || x.head.get('x-turnout-session-end') === '1'
    ? null
    : `${REWARD_HEADER} needs x-turnout-session-end: 1. POST /trajectories/{session}/reward gives a reward at any time.`;
}
