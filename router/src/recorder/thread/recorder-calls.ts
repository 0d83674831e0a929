import { CallCaptures } from './call-captures.ts';
import type { EndedResponse } from './captures.ts';
import { captureCalls } from './capture/capture-calls.ts';
import { ExpertsFiles } from './capture/experts-files.ts';
import { clientCalls } from '../shared/client-calls.ts';
import type { ExpertsPiece } from '../tap/experts-tap.ts';
import { chatCalls } from './chat/chat-calls.ts';
import { exportCalls } from './export/export-calls.ts';
import type { RecorderOptions } from '../tap/recorder-thread.ts';
import { defaultMemoryBytes } from '../shared/memory-limit.ts';
import { feedCalls } from './feed/feed-calls.ts';
import { HeapLimits } from './heap-limits.ts';
import { openStore } from './store/open.ts';
import { Expiry } from './store/expiry.ts';
import { type SessionEnd, storeCalls } from './store/store-calls.ts';
import { type TrajectoryStore, filesOf } from './store/store.ts';
import { TurnWriter } from './store/writer.ts';
import type { ChatName, SessionName } from '../shared/turn.ts';

/** `text`: prompts and their samples, whatever the API; `chat`: chat completions of sessions; `call`: of `/v1/messages` and `/v1/responses`. */
export type CaptureKind = 'text' | 'chat' | 'call';

export interface EndedCapture extends EndedResponse {
  readonly kind: CaptureKind;
  /** The session is over with this response; null: it goes on, as far as is known. */
  readonly sessionEnd: SessionEnd | null;
}

export interface Recorded {
  /** Why its tokens could not be read; null: they could. */
  readonly problem: string | null;
  /** If it is awaited: its turns are in the store, or there are none. */
  readonly isStored: boolean;
  /** The end of the session is stored. */
  readonly isEnded: boolean;
}

/** Everything that the recorder thread can be asked for. */
export async function recorderCalls(options: RecorderOptions) {
  const { dataDir, store = null, storeMemoryBytes = defaultMemoryBytes(), storeMaxAgeSecs = 0 } = options;
  const place = { store, dataDir, memoryBytes: storeMemoryBytes, syncs: options.syncsStore === true };
  const writer = new TurnWriter(await openStore(place));
  // The clock may have been set back since the process before. A store that is away can't say.
  await newestIn(writer.store).then(
    (id) => writer.ids.next(id),
    () => {},
  );
  const heap = new HeapLimits();
  const files = dataDir === null ? null : new ExpertsFiles(dataDir);
  const { calls, tokenizer, known, captures, ended, turnsLost } = captureCalls(options, writer, files, heap);
  const settled = (): Promise<unknown> => captures.settled();
  const recorded = async (): Promise<void> => {
    await Promise.all(Object.values(kinds).map((each) => each.settled()));
    await writer.flush();
  };
  const feed = feedCalls({ writer, dataDir, tokenizerPath: options.tokenizerPath, recorded });
  const stored = storeCalls({
    feed: feed.ends,
    writer,
    dataDir,
    recorded,
    onEnded: ended,
    counted: () => ({
      lostParts: files?.lost ?? 0,
      expired: expiry?.expired ?? 0,
      evictedTurns: known()?.forest.counts.evictedLiveTurns ?? 0,
      lostPrompts: known()?.counts.lost ?? 0,
    }),
  });
  const {
    letGo,
    evicted,
    lost,
    captures: chatCaptures,
    ...chats
  } = chatCalls({
    tokenizer,
    tokenizerPath: options.tokenizerPath,
    dataDir,
    writer,
    memoryBytes: storeMemoryBytes,
    heap,
    files,
    removeStored: stored.removeSession,
  });
  const keepsBodies = options.keepsBodies === true;
  const kinds = {
    text: captures,
    chat: chatCaptures,
    call: new CallCaptures({ tree: known, settled, writer, files, keepsBodies, turnsLost }),
  };
  for (const each of Object.values(kinds)) each.onUncaptured = feed.turnLost;
  writer.onLost = (turn) => {
    feed.turnLost(turn);
    lost(turn.session, turn.tenant);
    for (const each of filesOf(turn)) files?.remove(each);
  };
  writer.store.onEvicted = (session, tenant, experts) => {
    feed.evicted({ session, tenant });
    evicted(session, tenant);
    for (const each of experts) files?.remove(each);
  };
  const expire = async ({ session, tenant = '' }: SessionName): Promise<number> => {
    // It goes on: its last turns wait for the store. A full store gets its space from other sessions.
    if (writer.notStored({ session, tenant }) !== null) return 0;
    lost(session, tenant);
    feed.evicted({ session, tenant });
    return stored.removeSession({ session, tenant });
  };
  const kept = { store: writer.store, ids: writer.ids, maxAgeMs: storeMaxAgeSecs * 1_000, letGo, remove: expire };
  const expiry = storeMaxAgeSecs > 0 ? new Expiry(kept) : null;
  return {
    ...clientCalls,
    ...calls,
    /** Turns of these sessions are not recorded, or may have been lost when the thread before this one ended. */
    turnsLost(names: readonly ChatName[]): void {
      calls.turnsLost(names);
      for (const name of names) feed.turnLost(name);
    },
    /** A response, or a part of it, has ended. */
    async captureEnded({ kind, sessionEnd, ...response }: EndedCapture): Promise<Recorded> {
      const problem = await kinds[kind].end(response);
      const isStored = problem !== null || (response.isAwaited && (await writer.stored()));
      const ended = sessionEnd === null ? null : stored.sessionEnded(sessionEnd);
      const isEnded = await (ended?.then(() => true) ?? Promise.resolve(false)).catch(() => false);
      return { problem, isStored, isEnded };
    },
    /** There is no response to record. */
    captureDropped({ kind, id }: Pick<EndedCapture, 'kind' | 'id'>): void {
      kinds[kind].drop(id);
    },
    // Without a data folder no routed experts are kept.
    expertsPiece(piece: ExpertsPiece): void {
      files?.take(piece);
    },
    expertsEnd({ key, cut, description }: { key: number; cut: number; description: string }): void {
      files?.end(key, cut, description);
    },
    async expertsDrop(key: number): Promise<void> {
      await settled();
      files?.drop(key);
    },
    ...stored,
    ...feed.calls,
    ...chats,
    ...exportCalls(writer, dataDir, recorded, async () => {
      if (options.tokenizerPath !== null) await calls.loadTokenizer();
      return tokenizer()?.pieces ?? null;
    }),
    /** Writes out what is still in memory. @returns how many turns the store does not take */
    async close(): Promise<number> {
      await settled();
      expiry?.close();
      files?.close();
      // The turns of the ends that it knows are to be stored before the next router reads the feed. A store that is away ends the feed too.
      await recorded();
      await feed.release().catch(() => {});
      return writer.close();
    },
  };
}

export type RecorderCalls = Awaited<ReturnType<typeof recorderCalls>>;

async function newestIn(store: TrajectoryStore): Promise<string | null> {
  let newest: string | null = null;
  const [turn] = await store.newest({ limit: 1 }, ({ id }) => (newest = id));
  return turn?.id ?? newest;
}
