import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { hash32 } from '../../kit/hash.ts';
import { unitsOf } from '../../kit/block-hash.ts';
import type { PolicyContext } from '../policy.ts';
import { PrefixIndex } from '../prefix-index/prefix-index.ts';
import type { StateMap } from '../state.ts';
import { Homes } from './homes.ts';
import { Lane } from './lane.ts';
import { type FirstPrompt, Group, type Session, Sessions } from './sessions.ts';
import { Slowness, defaultSpeed, prefillSecs, stepSecs } from './speed.ts';
import { Turn } from './turn.ts';
import { Workload } from './workload.ts';

/** What was learned is written down when the last session ends, or after this many ended ones. */
const SAVE_EVERY = 64;
/** Of bodies in which no prompt was found, and of answers without counts. */
const TOKENS_PER_BYTE = 1 / 4;
const NO_BLOCKS = new Uint32Array(0);
const NO_PROMPT: FirstPrompt = { tokens: 1, blocks: NO_BLOCKS, tokensPerByte: 0 };

/** Shorter work than this many tokens says nothing about speed. */
const MIN_TOKENS_TIMED = 64;

/** How long an answer was: as its engine says; else by how often something of it came, which is about once a token; else by its bytes. */
function answerTokensOf({ usage, answerReads, answerBytes }: Exchange): number {
  if (usage !== null) return usage.outputTokens;
  return answerReads > 1 ? answerReads : Math.round(answerBytes * TOKENS_PER_BYTE);
}

/** What the policy knows: lanes, sessions, prefixes, lengths. Everything that happens is written down here. */
export class Book {
  readonly workload = new Workload();
  readonly sessions = new Sessions();
  readonly #context: PolicyContext;
  readonly #index: PrefixIndex;
  readonly #lanes = new Map<Worker, Lane>();
  readonly #slowness = new Slowness();
  /** Tokens per byte of prompts, by the field in which they stand, where engines said how many tokens they had. */
  readonly #tokensPerByte = new Map<string, number>();
  readonly #state: StateMap;
  readonly #homes: Homes;
  readonly #unsubscribe: () => void;
  #placed = 0;
  #answers = 0;
  #ended = 0;

  constructor(context: PolicyContext) {
    this.#context = context;
    this.#index = new PrefixIndex(context.options.maxTreeSize);
    this.#state = context.state('rollout');
    this.#homes = new Homes(context.state('rollout-sessions'));
    const saved = this.#state.get('workload');
    if (saved !== undefined) this.workload.load(saved);
    this.#unsubscribe = context.fleet.onEvent((event, worker) => {
      if (event === 'removed') {
        this.#leave(worker);
        this.#lanes.delete(worker);
      } else if (event === 'changed' && !context.fleet.isEligible(worker)) {
        // It died, or will come back with other weights: nobody's context is there any more.
        this.#leave(worker);
      }
    });
  }

  lane(worker: Worker): Lane {
    let lane = this.#lanes.get(worker);
    if (lane === undefined) this.#lanes.set(worker, (lane = new Lane(worker, this.#slowness)));
    return lane;
  }

  /** What is known of an exchange; the same object until it has ended. */
  turn(x: Exchange): Turn {
    const note = x.placerNote;
    if (note instanceof Turn && note.book === this) return note;
    const turn = this.#open(x);
    x.placerNote = turn;
    return turn;
  }

  /** Tokens of the turn's prompt that the lane's worker should hold. */
  cachedTokens({ session, prompt, promptTokens }: Turn, lane: Lane): number {
    const { slot } = lane.worker;
    const { blocks, tokensPerByte } = prompt;
    const isHome = session !== null && session.home === lane && this.#index.has(slot, session.entry);
    const tokens = isHome
      ? session.contextTokens
      : unitsOf(this.#index.match(slot, blocks, blocks.length)) * tokensPerByte;
    return Math.min(tokens, promptTokens - 1);
  }

  begin(x: Exchange, worker: Worker): void {
    const turn = this.turn(x);
    const lane = this.lane(worker);
    const { session, group, prompt, promptTokens } = turn;
    const nowMs = this.#context.nowMs();
    const cached = this.cachedTokens(turn, lane);
    turn.lane = lane;
    turn.beginMs = nowMs;
    turn.prefillSecs = prefillSecs(lane.speed, cached, promptTokens - cached);
    turn.queueSecs = Math.max(0, lane.queueEndMs - nowMs) / 1000;
    lane.queueEndMs = Math.max(lane.queueEndMs, nowMs) + turn.prefillSecs * 1000;
    turn.readByMs = lane.queueEndMs;
    lane.sequences++;
    lane.kvTokens += promptTokens + turn.answerTokens / 2;
    if (turn.isFirstTurn) group.placed.set(lane, (group.placed.get(lane) ?? 0) + 1);
    const isHome = session !== null && session.home === lane;
    if (session !== null) {
      if (session.order === 0) session.order = ++this.#placed;
      session.underWay++;
      if (!isHome && session.home !== null) {
        this.#index.delete(session.home.worker.slot, session.entry);
      }
      session.grow(promptTokens);
      session.settle(lane, cached);
    }
    // Where it stays home, what it finds there is touched when it ends.
    if (!isHome) this.#remember(lane, turn, session?.entry ?? 0, promptTokens - prompt.tokens);
  }

  end(x: Exchange): void {
    const turn = this.turn(x);
    const { lane, session } = turn;
    if (lane === null) return;
    turn.lane = null;
    lane.sequences--;
    // Its prompt was read earlier than expected, and so will be those behind it.
    lane.queueEndMs -= Math.max(0, turn.readByMs - this.#context.nowMs());
    lane.kvTokens -= turn.promptTokens + turn.answerTokens / 2;
    if (session !== null) {
      session.underWay--;
      session.lastMs = this.#context.nowMs();
    }
    // A request without prompt or session is no work of the kind that anything is learned from.
    const isTurn = turn.field !== '' || session !== null;
    if (isTurn && x.outcome === 'complete' && x.status < 400) this.#learn(x, turn, lane);
  }

  /** @returns whether it was open. */
  endSession(id: string): boolean {
    const session = this.sessions.get(id);
    if (session === undefined) return false;
    this.#close(session, true);
    return true;
  }

  /** Closes sessions of which nothing was heard for too long. */
  expire(): void {
    for (const session of this.sessions.expired(this.#context.nowMs())) this.#close(session, false);
  }

  /**
   * The worker's cache holds nothing any more. Sessions stay at home there all the same: elsewhere is as little of them, and
   * the work is spread already.
   */
  flush(worker: Worker): void {
    this.#index.drop(worker.slot);
    const lane = this.#lanes.get(worker);
    if (lane !== undefined) lane.queueEndMs = 0;
  }

  describe(): Record<string, unknown> {
    const { workload, sessions } = this;
    return {
      openSessions: sessions.size,
      sessionTtlSecs: Math.round(sessions.ttlMs / 1000),
      expectedAnswerTokens: Math.round(workload.answerTokens),
      expectedTurnTokens: Math.round(workload.turnTokens),
      expectedTurns: Math.round(workload.turns * 10) / 10,
      hasTurns: workload.hasTurns,
      hasEndSignals: workload.hasEndSignals,
      blocks: this.#index.size,
      byWorker: Object.fromEntries(
        this.#context.fleet.workers.map((worker) => [worker.url, this.#lanes.get(worker)?.residents.size ?? 0]),
      ),
    };
  }

  close(): void {
    this.#unsubscribe();
    this.#save();
  }

  /** Whether the next turn of this session can be placed without a look into its body. */
  knows(id: string): boolean {
    const session = this.sessions.get(id);
    return session !== undefined && session.turns > 0;
  }

  /** Where the session's context lies; null: nowhere, or the worker is gone. */
  homeOf(id: string): Worker | null {
    const worker = this.sessions.get(id)?.home?.worker ?? null;
    return worker !== null && this.#context.fleet.has(worker) ? worker : null;
  }

  #open(x: Exchange): Turn {
    const nowMs = this.#context.nowMs();
    // Its length is announced; of a body that comes in chunks, what has come is known.
    const bodyBytes = Math.max(x.head.contentLength, x.body.bytes);
    let session = x.session === '' ? null : (this.sessions.get(x.session) ?? null);
    if (session !== null && session.turns > 0) {
      const grownBytes = Math.max(0, bodyBytes - session.bodyBytes);
      const promptTokens = session.promptTokens + grownBytes * session.first.tokensPerByte;
      this.sessions.touch(session, nowMs);
      this.workload.sawLaterTurn(promptTokens - session.promptTokens);
      const answerTokens = this.#expectedAnswer(session.group);
      return new Turn(this, session, session.group, session.first, promptTokens, answerTokens, bodyBytes, '');
    }
    const { prompt } = x;
    // Neither a prompt nor a body: GET /v1/models, for example. It is no turn of anything.
    if (prompt === null && bodyBytes <= 0) return new Turn(this, null, new Group(), NO_PROMPT, 1, 0, 0, '');
    const known = prompt === null ? undefined : this.#tokensPerByte.get(prompt.field);
    const tokensPerByte = known ?? (prompt === null ? TOKENS_PER_BYTE : prompt.tokens / Math.max(1, prompt.bytes));
    const tokens = Math.max(1, (prompt?.bytes ?? bodyBytes) * tokensPerByte);
    const first = { tokens, blocks: prompt?.blocks ?? NO_BLOCKS, tokensPerByte };
    const groupId = x.group !== '' ? x.group : (prompt?.hash.toString(36) ?? '');
    const group = groupId === '' ? new Group() : this.sessions.group(groupId);
    if (session !== null) this.sessions.touch(session, nowMs);
    else if (x.session !== '') {
      session = this.sessions.open(x.session, group, first, nowMs);
      this.#restore(session);
    }
    const answerTokens = this.#expectedAnswer(group);
    const field = prompt?.field ?? '';
    return new Turn(this, session, session?.group ?? group, first, tokens, answerTokens, bodyBytes, field);
  }

  /** The worker is away, with all that it held. */
  #leave(worker: Worker): void {
    this.flush(worker);
    const residents = [...(this.#lanes.get(worker)?.residents ?? [])];
    for (const session of residents) if (session.underWay === 0) session.settle(null);
  }

  /** A session of before the router's restart: its context lies where it lay. */
  #restore(session: Session): void {
    const home = this.#homes.of(session.id);
    if (home === null) return;
    const worker = this.#context.fleet.get(home.url);
    session.turns = 1;
    session.order = ++this.#placed;
    session.contextTokens = home.tokens;
    if (worker === undefined || !this.#context.fleet.isEligible(worker)) return;
    session.settle(this.lane(worker));
    this.#index.add(worker.slot, session.entry, home.tokens);
  }

  #expectedAnswer(group: Group): number {
    const { answerTokens, hasTurns } = this.workload;
    // What answers once is as long as its group mates, more or less.
    return hasTurns ? answerTokens : (group.answerTokens + answerTokens / 2) / (group.answers + 0.5);
  }

  /** The lane's worker holds this prompt now, and so much after it; what it must have evicted for that is forgotten. */
  #remember({ worker, capacityTokens }: Lane, { prompt }: Turn, entry: number, moreTokens: number): void {
    const { blocks, tokensPerByte } = prompt;
    // What follows comes first: what was used last is evicted last, and a prompt outlives what follows it.
    if (entry !== 0) this.#index.add(worker.slot, entry, Math.max(0, moreTokens));
    this.#index.insert(worker.slot, blocks, blocks.length, tokensPerByte);
    this.#index.trim(worker.slot, capacityTokens);
  }

  #learn(x: Exchange, turn: Turn, lane: Lane): void {
    const { session, group, prompt, field } = turn;
    // Of a pair, the answer and its counts are the decode engine's.
    const isAnswerer = x.answeredBy === null || x.answeredBy === lane.worker;
    const answerTokens = isAnswerer ? answerTokensOf(x) : 0;
    const counted = isAnswerer ? (x.usage?.promptTokens ?? -1) : -1;
    const promptTokens = counted > 0 ? counted : turn.promptTokens;
    if (counted > 0 && field !== '') {
      const seen = (counted * prompt.tokensPerByte) / turn.promptTokens;
      const known = this.#tokensPerByte.get(field) ?? seen;
      this.#tokensPerByte.set(field, known + (seen - known) / 16);
    }
    this.workload.sawAnswer(answerTokens);
    group.answers++;
    group.answerTokens += answerTokens;
    this.#learnSpeed(x, turn, lane, answerTokens);
    const contextTokens = promptTokens + answerTokens;
    const entry = session?.entry ?? hash32(`answer ${this.#answers++}`);
    this.#remember(lane, turn, entry, contextTokens - prompt.tokens);
    if (session === null) return;
    session.turns++;
    session.grow(contextTokens);
    session.promptTokens = promptTokens;
    session.bodyBytes = turn.bodyBytes;
    this.#homes.write(session, lane);
  }

  #learnSpeed(x: Exchange, turn: Turn, lane: Lane, answerTokens: number): void {
    const firstMs = x.firstByteMs - turn.beginMs;
    const streamMs = x.endMs - x.firstByteMs;
    // An answer that came in one piece doesn't tell when its prompt was read.
    if (streamMs < firstMs / 20) return;
    const expected = turn.prefillSecs / lane.slowness.prefill;
    if (turn.queueSecs === 0 && expected > MIN_TOKENS_TIMED * defaultSpeed.prefillToken) {
      lane.sawPrefill(firstMs / 1000, expected);
    }
    const steps = answerTokens - 1;
    if (steps < MIN_TOKENS_TIMED) return;
    lane.sawDecode(streamMs / 1000, steps * stepSecs(defaultSpeed, lane.sequences + 1, lane.kvTokens));
  }

  #close(session: Session, isSignalled: boolean): void {
    if (session.turns > 0) this.workload.sawEnd(session.turns, isSignalled);
    this.sessions.close(session);
    this.#homes.forget(session.id);
    if (++this.#ended % SAVE_EVERY === 0 || this.sessions.size === 0) this.#save();
  }

  #save(): void {
    this.#state.set('workload', this.workload.save());
  }
}
