import type { TurnWriter } from '../store/writer.ts';
import { type SessionQuery, type TurnFilter, turnBytes, turnsOf } from '../store/store.ts';
import type { SessionName, Turn } from '../../shared/turn.ts';
import type { TokenPieces } from '../tokens/pieces.ts';
import type { ExportFormat } from '../../shared/export-formats.ts';
import { ByteStreams } from './byte-streams.ts';
import { exportBytes } from './formats.ts';
import { metricsOf, summaryOf } from './summary.ts';
import { turnJson } from './turn-json.ts';
import { type ExportQuery, noProgress } from './walk.ts';
import { Pauses } from '../pauses.ts';
import { outcomeJson } from '../../shared/outcome.ts';

export interface ExportOrder {
  /** For `exportNext` and `exportEnd`: `RecorderThread.newId()`. */
  readonly id: number;
  readonly format: ExportFormat;
  readonly query: ExportQuery;
}

export interface TurnsQuestion extends SessionName {
  /** Only turns after this one. */
  readonly after?: string | undefined;
  readonly limit: number;
  /** With the text of each token, if there is a tokenizer. */
  readonly texts?: boolean | undefined;
}

/** A page of turns ends with the one that exceeds this size, whatever its limit; its JSON is about twice as large. */
const PAGE_BYTES = 4_194_304;
/** The number of concurrent exports: each holds a trajectory, or a group of rows. */
const MAX_EXPORTS = 4;

/**
 * Calls of the recorder thread for listings and exports. They return bytes of JSON or of a file, so that the event loop does not make them.
 * @param recorded resolves when the turns that ended before the call are in the store
 * @param pieces loads the bytes of the tokenizer's tokens; null: there is no tokenizer
 */
export function exportCalls(
  writer: TurnWriter,
  dataDir: string | null,
  recorded: () => Promise<unknown>,
  pieces: () => Promise<TokenPieces | null>,
) {
  const { store } = writer;
  const exports = new ByteStreams();
  /** Exports whose first trajectory is being read. */
  let beginning = 0;
  /** What can be read of a session, and how much can't be. */
  const readable = async ({ session, tenant }: SessionName) => {
    let damaged = 0;
    const turns = await turnsOf(store, session, tenant, () => damaged++);
    return { turns, damaged: damaged === 0 ? {} : { damaged_turns: damaged } };
  };
  return {
    /** Why what is read of these turns would not be all; null: it would. */
    async notStored(turns: Pick<TurnFilter, 'session' | 'tenant' | 'group'>): Promise<string | null> {
      await recorded();
      return writer.notStored(turns);
    },
    /** A page of sessions. */
    async sessionsJson(query: SessionQuery): Promise<Uint8Array> {
      await recorded();
      const heads = await store.sessions(query);
      const trajectories = [];
      const pauses = new Pauses();
      for (const { session, tenant, outcome } of heads) {
        await pauses.pause();
        const { turns, damaged } = await readable({ session, tenant });
        if (turns.length > 0) trajectories.push({ ...summaryOf(turns), ...damaged, ...outcomeJson(outcome) });
      }
      const next = heads.length < query.limit ? null : heads.at(-1)!.firstTurn;
      return json({ trajectories, next });
    },
    /** A page of a session's turns; null: there is no such session. */
    async turnsJson({ session, tenant, after = '', limit, texts = false }: TurnsQuestion): Promise<Uint8Array | null> {
      await recorded();
      const { turns: all, damaged } = await readable({ session, tenant });
      if (all.length === 0) return null;
      const left = all.filter(({ id }) => id > after);
      const page: Turn[] = [];
      let bytes = 0;
      for (const { id } of left.slice(0, limit)) {
        const turn = await store.get(id);
        if (turn !== null) page.push(turn);
        bytes += turn === null ? 0 : turnBytes(turn);
        if (bytes >= PAGE_BYTES) break;
      }
      const next = page.length < left.length ? (page.at(-1)?.id ?? null) : null;
      const [head] = await store.sessions({ session, limit: 1, tenant });
      const outcome = outcomeJson(head?.outcome ?? null);
      const spelled = texts ? await pieces() : null;
      return json({
        ...summaryOf(all),
        ...damaged,
        ...outcome,
        page: page.map((turn) => turnJson(turn, spelled)),
        next,
      });
    },
    async metricsJson(question: SessionName): Promise<Uint8Array | null> {
      await recorded();
      const { turns, damaged } = await readable(question);
      return turns.length === 0 ? null : json({ ...metricsOf(turns), ...damaged });
    },
    /** Rejects if the store is away. @returns false: there are too many exports */
    async exportBegin({ id, format, query }: ExportOrder): Promise<boolean> {
      if (exports.size + beginning >= MAX_EXPORTS) return false;
      beginning++;
      try {
        await recorded();
        exports.begin(id, await exportBytes(store, { format, query, dataDir }, noProgress()));
        return true;
      } finally {
        beginning--;
      }
    },
    /** null: it is complete. */
    exportNext: (id: number): Promise<Uint8Array | null> => exports.next(id),
    /** The rest of the export is not needed. */
    exportEnd: (id: number): Promise<void> => exports.end(id),
  };
}

const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));
