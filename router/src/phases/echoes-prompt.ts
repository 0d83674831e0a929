import type { StateKey } from './exchange-view.ts';

/** Set by a plugin that will ask engines to echo the prompt, with other fields than `echo`: the engine that samples must compute the prompt. */
export const echoesPrompt: StateKey<true> = {};
