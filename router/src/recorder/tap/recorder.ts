import type { BuiltIns } from '../../plugins/definition.ts';
import type { Config } from '../../config/options.ts';
import type { BuiltInPlugin } from '../../config/options/plugins.ts';
import { cameWithin } from '../../kit/came-within.ts';
import { RouterError } from '../../kit/errors.ts';
import type { Exchange } from '../../exchange.ts';
import type { Logger } from '../../observe/log.ts';
import { sessionOf } from '../../classify/routing-keys.ts';
import type { Observer } from '../../observe/observer.ts';
import { hasSucceeded } from '../../placed-request.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import type { WeightSource } from '../../weights/engine-weights.ts';
import type { VersionLabels } from '../../weights/version-labels.ts';
import type { GateParts } from './feed/gate.ts';
import type { TrainerFeed } from '../../observe/trainer-feed.ts';
import { addTrajectoryRoutes } from './routes.ts';
import { CallStrategy } from './call-strategy.ts';
import { AnswerCapture, type AnswerCaptureParts } from './answer-capture.ts';
import { ExpertsChannel, ExpertsTap } from './experts-tap.ts';
import { GrowthLog } from './growth-log.ts';
import { PendingEnds } from './pending-ends.ts';
import { RecorderThread } from './recorder-thread.ts';
import { type Bracket, VersionBrackets } from '../../weights/version-brackets.ts';
import { defaultMemoryBytes, machineMemory } from '../shared/memory-limit.ts';
import { REWARD_HEADER, rewardIn } from '../shared/outcome.ts';
import type { SessionEnd, SessionEnded, StoreState } from '../thread/store/store-calls.ts';
import { StoredFirst } from './stored-first.ts';
import { ThreadRestarts } from './thread-restarts.ts';

/** How often the thread is asked for the state of its store. */
const LOOK_MS = 1_000;
/** How long a stop waits for the last turns: longer than for a store that does not answer. */
const CLOSE_MS = 15_000;

const AWAY = 'the thread that keeps trajectories has ended, and is started again';

const TURNS_LOST =
  'earlier turns of sessions in progress are lost: the prompts were tokenised again and have the drift "lost". Set --data-dir, or a larger --radix-max-bytes';
const TURNS_EVICTED =
  'turns of sessions that are not over were evicted from the token trees, and are read from the store again: set a larger --radix-max-bytes';

/** Whether anything is captured, or was and is to be looked at. A tokenizer alone captures nothing. */
const areWanted = ({ store, captureRequired, tokenizerPath, plugin, captureChat }: Config): boolean =>
  store !== undefined || captureRequired || (tokenizerPath !== undefined && (plugin.length > 0 || captureChat));

/** Rejects with a message for the user if the store can't be opened. @returns null: no option asks for a recorder */
export async function startRecorder(
  config: Config,
  labels: VersionLabels,
  log: Logger,
  weights: WeightSource | null,
): Promise<Recorder | null> {
  return areWanted(config) ? Recorder.start(config, labels, log, weights) : null;
}

/** Records the tokens of sessions. This is its part on the event loop: it starts the recorder thread and knows the state of its store. */
export class Recorder {
  readonly thread: RecorderThread;
  readonly versions: VersionBrackets;
  readonly sessionHeaders: readonly string[];
  readonly #channel: ExpertsChannel;
  /** Records `/v1/messages` and `/v1/responses`. */
  readonly calls: CallStrategy;
  readonly #storedFirst: StoredFirst;
  readonly #waits: boolean;
  /** The limit of the token trees. */
  readonly treeBytes: number;
  readonly #log: Logger;
  /** `--capture-required`: requests that can't be captured are refused. */
  readonly isRequired: boolean;
  /** Reports sessions that are over; its place is after the observer that ends plugins' turns. */
  readonly sessionEnds: Observer;
  readonly #takenEnds: StateKey<true> = {};
  readonly #areWhole: StateKey<boolean> = {};
  readonly #ends: PendingEnds;
  #timer: NodeJS.Timeout | undefined;
  /** Set by `start`. */
  #state!: StoreState;
  readonly restarts: ThreadRestarts;
  /** A part of the requests fails without the thread. */
  isNeeded: boolean;
  /** What the plugin `feed` shows; null: it is not loaded. */
  feed: TrainerFeed | null = null;
  readonly #droppedLog = new GrowthLog();
  readonly #evictedLog = new GrowthLog();
  readonly #lossLog = new GrowthLog();
  /** Memory limit of the turns of a memory store, in bytes. */
  readonly #storeBytes: number;

  private constructor(config: Config, labels: VersionLabels, log: Logger, weights: WeightSource | null) {
    const { dataDir = null, store = null, storeMaxAgeSecs, tokenizerPath = null } = config;
    const storeMemoryBytes = config.storeMemoryBytes ?? defaultMemoryBytes();
    this.#storeBytes = storeMemoryBytes;
    const { radixMaxCacheSize: maxNodes = Infinity, radixGcThresholdK: keepVersions } = config;
    this.treeBytes = config.radixMaxBytes ?? defaultMemoryBytes();
    const tokens = { tokenizerPath, maxNodes, maxBytes: this.treeBytes, keepVersions };
    this.#log = log;
    this.#storedFirst = new StoredFirst(log);
    this.#waits = config.storeWait !== 'off';
    this.isRequired = config.captureRequired;
    this.thread = new RecorderThread(
      {
        ...tokens,
        dataDir,
        store,
        storeMemoryBytes,
        storeMaxAgeSecs,
        keepsBodies: config.captureBodies,
        syncsStore: config.storeWait === 'synced',
      },
      (error) => this.#died(error),
    );
    this.isNeeded = config.captureRequired;
    this.restarts = new ThreadRestarts(this.thread, log);
    this.versions = new VersionBrackets(labels, weights, (learned) => this.thread.tell('versionLearned', learned));
    this.thread.completes = () => this.versions.settled();
    this.#channel = new ExpertsChannel(this.thread);
    this.#ends = new PendingEnds((end) => this.thread.endSession(end), log);
    // Runs after the plugins' `finished`, so that the turn of that request is recorded first.
    this.sessionEnds = {
      finished: (x) => {
        const end = this.takeEnd(x);
        if (end !== null) this.keepEnd(end);
      },
    };
    this.sessionHeaders = config.sessionHeaders;
    this.calls = new CallStrategy(this, log);
  }

  /** Rejects with a message for the user if the store can't be opened. */
  static async start(
    config: Config,
    labels: VersionLabels,
    log: Logger,
    weights: WeightSource | null,
  ): Promise<Recorder> {
    const started = new Recorder(config, labels, log, weights);
    try {
      started.#state = await started.thread.ask('storeState', null);
      started.#timer = setInterval(() => void started.#look(), LOOK_MS).unref();
    } catch (error) {
      await started.thread.close();
      throw new Error(`trajectories can't be kept: ${(error as Error).message}`, { cause: error });
    }
    const { place } = started.#state;
    const { bytes, from } = machineMemory();
    const limit = { maxBytes: started.#storeBytes, memoryBytes: bytes, memoryFrom: from };
    log.info({ store: place, ...(place === 'memory' ? limit : {}) }, 'trajectories are kept');
    return started;
  }

  /** Listens to an answer and hands over what it says. Its routed experts are taken out of it and kept by the thread. */
  captureAnswer(parts: AnswerCaptureParts, bracket: Bracket | null): AnswerCapture {
    this.versions.follow(bracket, parts.tap);
    return new AnswerCapture(parts, new ExpertsTap(this.#channel), this.#storedFirst);
  }

  /** Whether ends of answers wait until their turns are in the store. Memory is gone with the router: nothing is to be waited for. */
  get storesFirst(): boolean {
    return this.#waits && this.#state.place !== 'memory';
  }

  /** The plugin `feed` keeps several rewards for a session. */
  get keepsRewards(): boolean {
    return this.feed !== null;
  }

  /** Records the end of a session. Rejects if it can't be stored now. */
  end(end: SessionEnd): Promise<SessionEnded> {
    return this.#ends.end(end);
  }

  /** Records the end of a session, now or as soon as that is possible. @param isStored see `PendingEnds.keep` */
  keepEnd(end: SessionEnd, isStored?: Promise<boolean>): void {
    this.#ends.keep(end, isStored);
  }

  /** Removes a chat session. @returns whether there was one */
  remove(session: string, tenant: string): Promise<boolean> {
    return this.thread.ask('chatRemove', { session, tenant });
  }

  /** What captures, and what answers `/trajectories`. */
  get plugins(): readonly Plugin[] {
    const routes: Plugin['routes'] = ({ forClients }) => addTrajectoryRoutes(forClients, this.thread);
    // A list of millions of turns, after an export, takes the thread minutes.
    const own: Plugin = { name: 'trajectories', appliesTo: () => false, routes, timeoutMs: 600_000 };
    return [own, ...this.calls.plugins];
  }

  /** As of about a second ago. */
  get state(): StoreState & { readonly sentEarly: number } {
    const { sentEarly } = this.#storedFirst;
    return { ...this.#state, dropped: this.#state.dropped + this.thread.missed, sentEarly };
  }

  /** With `--capture-required`, the error for requests that can't be captured now. null: continue. */
  get refusal(): RouterError | null {
    const { isAway } = this.restarts;
    if (!this.isRequired || !(isAway || this.#state.isFailing)) return null;
    const reason = isAway ? AWAY : this.#state.lastError;
    const message = `Trajectories can't be kept now, and --capture-required is set: ${reason}.`;
    return new RouterError('capture_failed', message);
  }

  /** Why a part of the requests fails; null: none does. */
  get problem(): string | null {
    if (this.refusal !== null) return this.refusal.message;
    return this.isNeeded && this.restarts.isAway ? AWAY : null;
  }

  /** After the last exchange, and after the plugins. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.restarts.close();
    const isLate = !(await cameWithin(CLOSE_MS, this.#end()));
    const { lost } = this.thread;
    const { waiting: lostEnds } = this.#ends;
    const { lastError: error, place: store } = this.#state;
    if (isLate) {
      this.#log.error(
        { lostEnds, store },
        'trajectories were not all stored in time: the last turns or ends may be lost',
      );
      await this.thread.abort(new Error('the router stops'));
    } else if (lost + lostEnds > 0)
      this.#log.error({ lost, lostEnds, error, store }, 'trajectory store is failing: the last turns or ends are lost');
  }

  /** @returns false: it has ended */
  async #end(): Promise<false> {
    await this.versions.settled();
    await this.#look();
    await this.#ends.retry();
    await this.thread.close();
    return false;
  }

  /** A part of a response, or all of it, has come. @param isWhole whether all choices have ended */
  captured(x: Exchange, isWhole: boolean): void {
    x.setState(this.#areWhole, isWhole);
  }

  /**
   * The end of a session that its client says with this request; null: it says none, it was taken already, or the request has failed. A client
   * that left after the last choice had ended has a whole response.
   */
  takeEnd(x: Exchange): SessionEnd | null {
    const hasLeft = x.outcome === 'client_left';
    const isWhole = x.state(this.#areWhole) ?? !hasLeft;
    const hasFailed = !isWhole || (x.outcome !== null && !hasLeft && !hasSucceeded(x));
    const end = hasFailed || x.state(this.#takenEnds) === true ? null : endIn(x, this.sessionHeaders);
    if (end !== null) x.setState(this.#takenEnds, true);
    return end;
  }

  /** As `takeEnd`, if no earlier end of the session is to be stored before it. */
  takeFirstEnd(x: Exchange): SessionEnd | null {
    const session = sessionOf(x, this.sessionHeaders);
    return this.#ends.has(session) ? null : this.takeEnd(x);
  }

  /** What it had not written is lost, and a store in its memory with it. Its counters begin anew. */
  #died(error: Error): void {
    // During the start: the start fails.
    if ((this.#state as StoreState | undefined) === undefined) return;
    const { dropped, pending, turns, place } = this.#state;
    this.thread.missed += dropped + pending + (place === 'memory' ? Math.max(turns, 0) : 0);
    this.#state = { ...this.#state, dropped: 0, pending: 0, turns: place === 'memory' ? 0 : turns };
    this.restarts.died(error);
  }

  async #look(): Promise<void> {
    if (this.restarts.isAway) return;
    const wasFailing = this.#state.isFailing;
    try {
      this.#state = await this.thread.ask('storeState', null);
      if (this.#state.place !== 'memory') await this.thread.proveStored();
    } catch {
      // It has ended: said already.
      return;
    }
    void this.#ends.retry();
    const { dropped, evictedLive, evictedTurns, lostPrompts } = this.#state;
    const { lastError: error, place: store, isFailing, pending } = this.#state;
    const log = this.#log;
    if (isFailing && !wasFailing)
      log.warn({ error, store, pending }, 'trajectory store is failing: turns are buffered');
    if (!isFailing && wasFailing) log.info({ store }, 'trajectory store works again');
    this.#droppedLog.log({ dropped }, (more) => log.warn({ ...more, error, store }, 'turns were dropped'));
    this.#evictedLog.log({ sessions: evictedLive }, (more) =>
      log.warn(
        { ...more, maxBytes: this.#storeBytes },
        'sessions that are not over were evicted from memory: set --data-dir, or a larger --store-memory-bytes',
      ),
    );
    this.#lossLog.log({ evictedTurns, lostPrompts }, (more) =>
      log.warn({ ...more, maxBytes: this.treeBytes }, more.lostPrompts > 0 ? TURNS_LOST : TURNS_EVICTED),
    );
  }
}

/** The end of a session that its client says with a request (`x-turnout-session-end: 1`), with its reward; null: it says none. */
function endIn(x: Exchange, sessionHeaders: readonly string[]): SessionEnd | null {
  if (!x.isLastTurn && x.head.get('x-turnout-session-end') !== '1') return null;
  const session = sessionOf(x, sessionHeaders);
  if (session === '') return null;
  const reward = rewardIn(x.head.get(REWARD_HEADER) ?? '');
  return { session, tenant: x.tenant, ...(reward === null ? {} : { reward }) };
}

/** The built-in plugins that record tokens. @param recorder null: none of the options asks for one */
export const recorderPlugins = (
  recorder: Recorder | null,
  requests: Pick<GateParts, 'inFlight' | 'isDraining' | 'endSession'>,
): BuiltIns<Exclude<BuiltInPlugin, 'rollout-fields'>> => ({
  feed: async () => (await import('./feed/index.ts')).feed(recorder, requests),
  'chat-sessions': async () => (await import('./chat-sessions/index.ts')).chatSessions(recorder),
  'radix-tree': async () => (await import('./radix-tree/index.ts')).radixTree(recorder),
});
