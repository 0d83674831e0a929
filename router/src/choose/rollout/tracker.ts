import type { PlacedRequest } from '../../placed-request.ts';
import { SKYRL_PATH } from '../../engines/dialects/dialects.ts';
import type { Worker } from '../../fleet/worker.ts';
import { hash32 } from '../../kit/hash.ts';
import { unitsOf } from '../../kit/block-hash.ts';
import { ListedWorkers } from '../listed-workers.ts';
import type { IndexSize, PolicyContext } from '../policy.ts';
import { PrefixIndex } from '../prefix-index/prefix-index.ts';
import type { StateMap } from '../state.ts';
import { Candidates } from './candidates.ts';
import { FEW } from './cheapest.ts';
import { Guests } from './guests.ts';
import { LoadOrder } from './load-order.ts';
import { roomTokens } from './residency.ts';
import { RoomOrder } from './room-order.ts';
import { type FirstPrompt, Group, type OpenSession, OpenSessions, SavedHomes } from './open-sessions.ts';
import { Slowness, WorkerState, learnSpeed, prefillSecs } from './worker-state.ts';
import { RolloutRequest } from './request.ts';
import { UserKeys } from './user-keys.ts';
import { Workload } from './workload.ts';

/** The learned workload is saved when the last session ends, or after this many ended sessions. */
const SAVE_EVERY = 64;
/** For bodies without a known prompt field, and for responses without a token count. */
const TOKENS_PER_BYTE = 1 / 4;
const NO_BLOCKS = new Uint32Array(0);
const NO_PROMPT: FirstPrompt = { tokens: 1, blocks: NO_BLOCKS, tokensPerByte: 0 };

/** The tokens of a response by the engine's own count; else one per read, which is about right; else from its bytes. null: not known. */
function answerTokensOf({ usage, path, answerReads, answerBytes }: PlacedRequest): number | null {
  if (usage !== null) return usage.outputTokens;
  // A gateway moved them, or most of them are routed experts.
  if (answerBytes === 0 || path === SKYRL_PATH) return null;
  return answerReads > 1 ? answerReads : Math.round(answerBytes * TOKENS_PER_BYTE);
}

/** What the rollout policy knows of workers, sessions, prefixes and response lengths. It is updated by every event. */
export class RolloutTracker {
  readonly workload = new Workload();
  readonly sessions = new OpenSessions();
  readonly guests: Guests;
  readonly #context: PolicyContext;
  readonly #index: PrefixIndex;
  readonly #workerStates = new Map<Worker, WorkerState>();
  readonly #slowness = new Slowness();
  readonly #listed: ListedWorkers;
  /** null: no decision needed it yet. */
  #order: LoadOrder | null = null;
  #candidates: Candidates | null = null;
  #rooms: RoomOrder | null = null;
  /** Tokens per byte of prompts, by the body's field, learned where engines reported the tokens of the prompt. */
  readonly #tokensPerByte = new Map<string, number>();
  readonly #state: StateMap;
  readonly #homes: SavedHomes;
  readonly #userKeys = new UserKeys(this.sessions, (session) => this.#close(session, false));
  readonly #unsubscribe: () => void;
  #placed = 0;
  #guestTurns = 0;
  #answers = 0;
  #ended = 0;

  constructor(context: PolicyContext) {
    this.#context = context;
    this.#listed = new ListedWorkers(context.fleet);
    this.guests = new Guests(this.#listed);
    this.#index = new PrefixIndex(context.options.maxTreeSize);
    this.#state = context.state('rollout');
    this.#homes = new SavedHomes(context.state('rollout-sessions'));
    const saved = this.#state.get('workload');
    if (saved !== undefined) this.workload.load(saved);
    const { fleet } = context;
    this.#unsubscribe = fleet.onEvent((event, worker) => {
      if (event === 'drained') return;
      // Responses of a removed worker may have ended after that, and the slot is another worker's now.
      if (event === 'added') this.#index.drop(worker.slot);
      const state = this.workerState(worker);
      // The worker failed, or its weights changed, so the contexts in its cache are lost.
      if (!fleet.isEligible(worker)) this.#leave(state);
      this.#loadChanged(state);
      if (event !== 'removed') return;
      this.#workerStates.delete(worker);
      state.hasLeft = true;
    });
  }

  workerState(worker: Worker): WorkerState {
    let state = this.#workerStates.get(worker);
    if (state === undefined) this.#workerStates.set(worker, (state = new WorkerState(worker, this.#slowness)));
    return state;
  }

  /** The workers that `choose` compares in a large fleet. */
  get candidates(): Candidates {
    if (this.#candidates !== null) return this.#candidates;
    const { fleet } = this.#context;
    this.#order = new LoadOrder(this.#slowness, this.workload);
    for (const worker of fleet.eligible) this.#loadChanged(this.workerState(worker));
    return (this.#candidates = new Candidates(this.#listed, this.#index, this.#order));
  }

  /** Calls `visit` for those of the workers with room for so many tokens, of many workers those with most of it first, until it returns false. */
  visitRoomy(tokens: number, workers: readonly Worker[], visit: (state: WorkerState) => boolean): void {
    const roomOf = (state: WorkerState): number => roomTokens(state, this.workload.turnTokens);
    if (workers.length <= FEW) {
      const roomy = workers.map((worker) => this.workerState(worker)).filter((state) => roomOf(state) >= tokens);
      roomy.every(visit);
      return;
    }
    if (this.#rooms === null) {
      this.#rooms = new RoomOrder(roomOf);
      for (const worker of this.#context.fleet.eligible) this.#loadChanged(this.workerState(worker));
    }
    this.#listed.read(workers);
    this.#rooms.visit(tokens, (state) => !this.#listed.has(state.worker) || visit(state));
  }

  /** What is known of an exchange; the same object until the exchange ends. */
  request(x: PlacedRequest): RolloutRequest {
    const note = x.policyState;
    if (note instanceof RolloutRequest && note.tracker === this) return note;
    const request = this.#open(x);
    x.policyState = request;
    return request;
  }

  /** Tokens of the request's prompt that the worker should have in its cache. */
  cachedTokens({ session, prompt, promptTokens }: RolloutRequest, state: WorkerState): number {
    const { slot } = state.worker;
    const { blocks, tokensPerByte } = prompt;
    const isHome = session !== null && session.home === state && this.#index.has(slot, session.entry);
    const tokens = isHome ? session.contextTokens : unitsOf(this.#index.match(slot, blocks)) * tokensPerByte;
    return Math.min(tokens, promptTokens - 1);
  }

  begin(x: PlacedRequest, worker: Worker): void {
    const request = this.request(x);
    const state = this.workerState(worker);
    // The session was closed while this turn waited. Nothing would close it again, so it takes no room.
    if (request.session?.isOpen === false) request.session = null;
    const { session, group, prompt, promptTokens } = request;
    const nowMs = this.#context.nowMs();
    const cached = this.cachedTokens(request, state);
    // Less than 0: the request has no prompt.
    x.predictedTokens = cached < 0 ? null : cached;
    request.placedAt = state;
    request.beginMs = nowMs;
    request.prefillSecs = prefillSecs(state.speed, cached, promptTokens - cached);
    request.queueSecs = Math.max(0, state.queueEndMs - nowMs) / 1000;
    state.queueEndMs = Math.max(state.queueEndMs, nowMs) + request.prefillSecs * 1000;
    request.readByMs = state.queueEndMs;
    state.sequences++;
    state.kvTokens += promptTokens + request.answerTokens / 2;
    if (request.isGuest) this.guests.began(state, promptTokens + request.answerTokens / 2);
    if (request.isFirstTurn) group.place(session ?? request, state);
    const isHome = session !== null && session.home === state;
    if (session !== null) {
      if (session.order === 0) session.order = ++this.#placed;
      session.inFlight++;
      session.sentMs = nowMs;
      session.waiting = null;
      if (!isHome && session.home !== null) {
        this.#index.delete(session.home.worker.slot, session.entry);
      }
      session.grow(promptTokens);
      if (!request.isGuest) session.settle(state, cached);
      else {
        session.hasGivenWay = true;
        this.#guestTurns++;
      }
    }
    // If the session stays, its entries in the index are renewed when the request ends.
    if (!isHome) {
      this.#remember(state, request, session?.entry ?? 0, promptTokens - prompt.tokens);
      this.#order?.sawPrompt(promptTokens);
    }
    this.#loadChanged(state);
  }

  end(x: PlacedRequest): void {
    const request = this.request(x);
    const { placedAt: state, session } = request;
    if (state === null) return;
    request.placedAt = null;
    state.sequences--;
    // The prompt was read earlier than expected, and so will be the prompts after it.
    state.queueEndMs -= Math.max(0, request.readByMs - this.#context.nowMs());
    state.kvTokens -= request.promptTokens + request.answerTokens / 2;
    if (request.isGuest) this.guests.ended(state, request.promptTokens + request.answerTokens / 2);
    this.#loadChanged(state);
    if (session === null) request.group.place(request, null);
    else {
      session.inFlight--;
      this.sessions.spoke(session, this.#context.nowMs());
    }
    // A request without prompt or session teaches nothing about sessions.
    const isTurn = request.field !== '' || session !== null;
    if (isTurn && x.outcome === 'complete' && (x.status ?? 0) < 400) this.#learn(x, request, state);
  }

  /** @returns whether the session was open */
  endSession(id: string): boolean {
    const session = this.sessions.get(id);
    if (session === undefined) return false;
    this.#close(session, true);
    return true;
  }

  /** Closes sessions that were idle for too long. */
  expire(): void {
    for (const session of this.sessions.expired(this.#context.nowMs())) this.#close(session, false);
  }

  /** The worker's cache is empty. It stays the home of its sessions: no other worker has more of their contexts. */
  flush(worker: Worker): void {
    this.#index.drop(worker.slot);
    const state = this.#workerStates.get(worker);
    if (state === undefined) return;
    state.queueEndMs = 0;
    this.#loadChanged(state);
  }

  get indexSize(): IndexSize {
    return { blocks: this.#index.size, bytes: this.#index.bytes };
  }

  describe(): Record<string, unknown> {
    const { workload, sessions } = this;
    return {
      openSessions: sessions.proven,
      guestTurns: this.#guestTurns,
      sessionTtlSecs: Math.round(sessions.ttlMs / 1000),
      expectedAnswerTokens: Math.round(workload.answerTokens),
      expectedTurnTokens: Math.round(workload.turnTokens),
      expectedTurns: Math.round(workload.turns * 10) / 10,
      hasTurns: workload.hasTurns,
      hasEndSignals: workload.hasEndSignals,
      blocks: this.#index.size,
      byWorker: Object.fromEntries(
        this.#context.fleet.workers.map((worker) => [worker.url, this.#workerStates.get(worker)?.residents.size ?? 0]),
      ),
    };
  }

  close(): void {
    this.#unsubscribe();
    this.#save();
  }

  /** Whether the next turn of this session can be placed without its body. */
  knows(id: string): boolean {
    const session = this.sessions.get(id);
    return session !== undefined && session.turns > 0;
  }

  /** Where the context of the session is; null if that is not known or the worker was removed. */
  homeOf(id: string): Worker | null {
    const worker = this.sessions.get(id)?.home?.worker ?? null;
    return worker !== null && this.#context.fleet.has(worker) ? worker : null;
  }

  #open(x: PlacedRequest): RolloutRequest {
    if (x.cacheUse !== 'turn') {
      // It has no session and teaches nothing.
      const tokens = x.cacheUse === 'nothing' ? 1 : Math.max(1, x.bodyBytes * TOKENS_PER_BYTE);
      return new RolloutRequest(this, null, new Group(), NO_PROMPT, tokens, 0, 0, '');
    }
    if (x.key?.mayBeSession === true) this.#userKeys.decide(x);
    const nowMs = this.#context.nowMs();
    const { bodyBytes } = x;
    let session = x.session === '' ? null : (this.sessions.get(x.session) ?? null);
    if (session !== null) this.sessions.prove(session);
    if (session !== null && session.turns > 0) {
      const grownBytes = Math.max(0, bodyBytes - session.bodyBytes);
      const promptTokens = session.promptTokens + grownBytes * session.first.tokensPerByte;
      this.sessions.touch(session, nowMs);
      const secs = session.sentMs === null ? null : (nowMs - session.sentMs) / 1000;
      this.workload.sawLaterTurn(promptTokens - session.promptTokens, secs);
      const answerTokens = this.#expectedAnswer(session.group);
      return new RolloutRequest(this, session, session.group, session.first, promptTokens, answerTokens, bodyBytes, '');
    }
    const { prompt } = x;
    // Neither a prompt nor a body.
    if (prompt === null && bodyBytes <= 0) return new RolloutRequest(this, null, new Group(), NO_PROMPT, 1, 0, 0, '');
    const known = prompt === null ? undefined : this.#tokensPerByte.get(prompt.field);
    const tokensPerByte = known ?? (prompt === null ? TOKENS_PER_BYTE : prompt.tokens / Math.max(1, prompt.bytes));
    const tokens = Math.max(1, (prompt?.bytes ?? bodyBytes) * tokensPerByte);
    const first = { tokens, blocks: prompt?.blocks ?? NO_BLOCKS, tokensPerByte };
    const groupId = x.group !== '' ? x.group : (prompt?.hash.toString(36) ?? '');
    const group = groupId === '' ? new Group() : this.sessions.group(groupId);
    if (session !== null) this.sessions.touch(session, nowMs);
    else if (x.session !== '') {
      session = this.sessions.open(x.session, group, first, nowMs, x.key?.mayBeSingle !== true);
      this.#restore(session);
    }
    const answerTokens = this.#expectedAnswer(group);
    const field = prompt?.field ?? '';
    return new RolloutRequest(this, session, session?.group ?? group, first, tokens, answerTokens, bodyBytes, field);
  }

  /** The worker lost its cache. */
  #leave(state: WorkerState): void {
    this.flush(state.worker);
    const residents = [...state.residents];
    for (const session of residents) if (session.inFlight === 0) session.settle(null);
  }

  readonly #residentsChanged = (state: WorkerState): void => this.#rooms?.set(state);

  #loadChanged(state: WorkerState): void {
    if (this.#context.fleet.isEligible(state.worker)) {
      this.#order?.set(state, this.#context.nowMs());
      this.#rooms?.set(state);
      if (this.#rooms !== null) state.onResidents = this.#residentsChanged;
    } else {
      this.#order?.delete(state);
      this.#rooms?.delete(state);
      state.onResidents = null;
    }
  }

  /** A session from before the restart: its context is where it was saved to be. */
  #restore(session: OpenSession): void {
    const home = this.#homes.of(session.id);
    if (home === null) return;
    const worker = this.#context.fleet.get(home.url);
    this.sessions.prove(session);
    session.turns = 1;
    session.order = ++this.#placed;
    session.contextTokens = home.tokens;
    if (worker === undefined || !this.#context.fleet.isEligible(worker)) return;
    session.settle(this.workerState(worker));
    this.#index.add(worker.slot, session.entry, home.tokens);
  }

  #expectedAnswer(group: Group): number {
    const { answerTokens, hasTurns } = this.workload;
    // If requests have one turn each, the responses of one group have about the same length.
    return hasTurns ? answerTokens : (group.answerTokens + answerTokens / 2) / (group.answers + 0.5);
  }

  /** The worker now holds this prompt and `moreTokens` after it. What it must have evicted for them is forgotten. */
  #remember(
    { worker, capacityTokens }: WorkerState,
    { prompt }: RolloutRequest,
    entry: number,
    moreTokens: number,
  ): void {
    const { blocks, tokensPerByte } = prompt;
    // The tokens after the prompt go first: what is added last is evicted last, and a prompt outlives what follows.
    if (entry !== 0) this.#index.add(worker.slot, entry, Math.max(0, moreTokens));
    this.#index.insert(worker.slot, blocks, tokensPerByte);
    this.#index.trim(worker.slot, capacityTokens);
  }

  #learn(x: PlacedRequest, request: RolloutRequest, state: WorkerState): void {
    const { session, group, prompt, field } = request;
    // In a pair, the decode engine sends the response and its counts.
    const isAnswerer = x.answeredBy === null || x.answeredBy === state.worker;
    const seenTokens = isAnswerer ? answerTokensOf(x) : 0;
    const answerTokens = seenTokens ?? request.answerTokens;
    const counted = isAnswerer ? (x.usage?.promptTokens ?? 0) : 0;
    const promptTokens = counted > 0 ? counted : request.promptTokens;
    if (counted > 0 && field !== '') {
      const seen = (counted * prompt.tokensPerByte) / request.promptTokens;
      const known = this.#tokensPerByte.get(field) ?? seen;
      this.#tokensPerByte.set(field, known + (seen - known) / 16);
    }
    if (seenTokens !== null) {
      this.workload.sawAnswer(seenTokens);
      group.answers++;
      group.answerTokens += seenTokens;
      learnSpeed(x, request, state, seenTokens);
    }
    const contextTokens = promptTokens + answerTokens;
    const entry = session?.entry ?? hash32(`answer ${this.#answers++}`);
    this.#remember(state, request, entry, contextTokens - prompt.tokens);
    if (session === null) return;
    session.turns++;
    session.grow(contextTokens);
    session.promptTokens = promptTokens;
    session.bodyBytes = request.bodyBytes;
    // After the turn of a guest the session is where it was.
    if (session.home === state) this.#homes.write(session, state);
  }

  #close(session: OpenSession, isSignalled: boolean): void {
    if (session.turns > 0 && session.isProven) this.workload.sawEnd(session.turns, isSignalled);
    this.sessions.close(session);
    this.#homes.forget(session.id);
    if (++this.#ended % SAVE_EVERY === 0 || this.sessions.size === 0) this.#save();
  }

  #save(): void {
    this.#state.set('workload', this.workload.save());
  }
}
