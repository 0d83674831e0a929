import type { OutcomeChange } from './outcome.ts';
import type { SessionEnds } from './session-ends.ts';
import type { TurnWriter } from './store/writer.ts';
import type { SessionName } from './turn.ts';

/** The end of a session, as its client said it. */
export interface SessionEnd extends SessionName, OutcomeChange {}

interface SessionParts {
  readonly writer: TurnWriter;
  readonly sessionEnds: SessionEnds;
  /** Resolves when the turns that have ended are put into the writer. */
  readonly settled: () => Promise<unknown>;
}

/** What the trajectory thread can be told about sessions. */
export function sessionCalls({ writer, sessionEnds, settled }: SessionParts) {
  return {
    /** A session is over. @returns how many sessions of that name are on record: one for each tenant that has it */
    async sessionEnded({ session, tenant, reward, labels }: SessionEnd): Promise<number> {
      await settled();
      const name = tenant === undefined ? { session } : { session, tenant };
      sessionEnds.tell(name);
      await writer.flush();
      const change = { ...(reward === undefined ? {} : { reward }), ...(labels === undefined ? {} : { labels }) };
      return writer.store.finish(name, change, Date.now());
    },
  };
}
