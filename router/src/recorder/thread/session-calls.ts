import type { OutcomeChange } from '../shared/outcome.ts';
import type { TurnWriter } from './store/writer.ts';
import type { SessionName } from '../shared/turn.ts';

/** The end of a session, as its client said it. */
export interface SessionEnd extends SessionName, OutcomeChange {}

interface SessionParts {
  readonly writer: TurnWriter;
  /** Is called when a session is over; with a name without a tenant for the sessions of all tenants. Further turns may still follow. */
  readonly onEnded: (name: SessionName) => void;
  /** Resolves when the turns that have ended are put into the writer. */
  readonly settled: () => Promise<unknown>;
}

/** Calls of the recorder thread about sessions. */
export function sessionCalls({ writer, onEnded, settled }: SessionParts) {
  return {
    /** A session is over. @returns how many sessions of that name are on record: one for each tenant that has it */
    async sessionEnded({ session, tenant, reward, labels }: SessionEnd): Promise<number> {
      await settled();
      const name = tenant === undefined ? { session } : { session, tenant };
      onEnded(name);
      await writer.flush();
      const change = { ...(reward === undefined ? {} : { reward }), ...(labels === undefined ? {} : { labels }) };
      return writer.store.finish(name, change, Date.now());
    },
  };
}
