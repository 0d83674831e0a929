import type { TurnEnd } from '../../src/recorder/thread/tree/mark.ts';

/** The end of a turn that continues none. */
export const turnEnd = (parts: Partial<TurnEnd>): TurnEnd => ({
  turn: '',
  session: 's',
  owner: null,
  index: 0,
  tokens: 0,
  from: 0,
  hasLogprobs: true,
  own: null,
  parent: null,
  keeps: 0,
  digest: 0,
  isAmbiguous: false,
  isCut: false,
  ...parts,
});
