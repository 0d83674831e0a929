import type { ChatStats } from '../../thread/chat/keep-answer.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import type { PluginMetrics } from '../../../plugins/plugin-metrics.ts';
import type { ChatSessions } from './chat-sessions.ts';

/** Name and help by the count of the recorder thread. */
export const chatMetrics = {
  turns: ['turnout_chat_turns_total', 'Captured turns of chat sessions.'],
  drifted: [
    'turnout_chat_drifted_turns_total',
    'Captured turns of chat sessions whose prompt does not continue the stored tokens.',
  ],
  observed: [
    'turnout_chat_observed_turns_total',
    'Captured turns of chat sessions whose prompt the engine rendered itself.',
  ],
  torn: ['turnout_chat_torn_turns_total', 'Captured turns of chat sessions whose streams were truncated.'],
  uncaptured: ['turnout_chat_uncaptured_total', 'Responses of chat sessions that could not be captured.'],
  unread: ['turnout_chat_unread_sessions_total', 'Sessions whose earlier turns could not be read from the store.'],
} as const satisfies Partial<Record<keyof ChatStats, readonly [name: string, help: string]>>;

/** The counts of the recorder thread, read for each page of metrics. */
export function addMetrics(metrics: PluginMetrics, thread: RecorderThread, sessions: ChatSessions): void {
  let reading: Promise<ChatStats> | null = null;
  // One call for the whole page.
  const stats = (): Promise<ChatStats> => {
    reading ??= thread.ask('chatStats', null).finally(() => {
      reading = null;
    });
    return reading;
  };
  for (const [key, [name, help]] of Object.entries(chatMetrics)) {
    const counter = metrics.counter({
      name,
      help,
      async collect() {
        // Those that were too large never reach the thread that counts.
        const value = (await stats())[key as keyof typeof chatMetrics] + (key === 'uncaptured' ? sessions.unkept : 0);
        counter.reset();
        counter.inc(value);
      },
    });
  }
}
