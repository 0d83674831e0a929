import type { StateKey } from './exchange-view.ts';

/** Set for a request whose client wants to know of its prompt alone: what an engine samples for it is no turn. */
export const promptOnly: StateKey<true> = {};
