import type { BuiltIns } from '../plugins/definition.ts';
import type { Recorder } from './tap/recorder.ts';

/** The built-in plugins that record tokens. @param recorder null: neither `--tokenizer-path` nor `--store` is given */
export const recorderPlugins = (recorder: Recorder | null): BuiltIns => ({
  'chat-sessions': async () => (await import('./tap/chat-sessions/index.ts')).chatSessions(recorder),
  'radix-tree': async () => (await import('./tap/radix-tree/index.ts')).radixTree(recorder),
});
