import type { ChatStats } from '../../trajectory/chat/keep-answer.ts';
import type { Ledger } from '../../trajectory/ledger.ts';
import type { PluginMetrics } from '../plugin-metrics.ts';
import type { ChatSessions } from './chat-sessions.ts';

const counters = {
  turns: ['turnout_chat_turns_total', 'Turns of chat sessions that were kept.'],
  drifted: ['turnout_chat_drifted_turns_total', 'Those whose prompt is no continuation of what is on record.'],
  observed: ['turnout_chat_observed_turns_total', 'Those whose messages the engine rendered itself.'],
  torn: ['turnout_chat_torn_turns_total', 'Those whose streams broke off, kept as far as they came.'],
  uncaptured: ['turnout_chat_uncaptured_total', 'Answers whose tokens could not be read.'],
  unread: ['turnout_chat_unread_sessions_total', 'Sessions whose earlier turns could not be read from the store.'],
} as const satisfies Partial<Record<keyof ChatStats, readonly [name: string, help: string]>>;

/** The counts of the trajectory thread, read when somebody asks for the page. */
export function addMetrics(metrics: PluginMetrics, ledger: Ledger, sessions: ChatSessions): void {
  let reading: Promise<ChatStats> | null = null;
  // One question for the whole page.
  const stats = (): Promise<ChatStats> => {
    reading ??= ledger.ask('chatStats', null).finally(() => {
      reading = null;
    });
    return reading;
  };
  for (const [key, [name, help]] of Object.entries(counters)) {
    const counter = metrics.counter({
      name,
      help,
      async collect() {
        // Those that were too large never reach the thread that counts.
        const value = (await stats())[key as keyof typeof counters] + (key === 'uncaptured' ? sessions.unkept : 0);
        counter.reset();
        counter.inc(value);
      },
    });
  }
}
