import type { BuiltIns } from '../plugins/definition.ts';
import type { Recorder } from './tap/recorder.ts';

/** The built-in plugins that record tokens. @param recorder null: none of the options asks for one */
export const recorderPlugins = (recorder: Recorder | null): BuiltIns => ({
  'chat-sessions': async () => (await import('./tap/chat-sessions/index.ts')).chatSessions(recorder),
  'radix-tree': async () => (await import('./tap/radix-tree/index.ts')).radixTree(recorder),
});
