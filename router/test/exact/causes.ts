import { isSpecial } from '../../src/sim/tokenizer.ts';
import { shown } from './hard-text.ts';
import type { Call, Generated, Journal } from './journal.ts';

/** Why something is not known, in the words of docs/reference; null: there is no reason, so it has to be known. */
export const causeOf = {
  /** A turn is missing, or its end is. */
  loss(journal: Journal, { sentAt, endedAt }: Call): string | null {
    const isKilled = journal.routerDeaths.some((at) => sentAt < at && at < endedAt);
    return isKilled ? 'the router was killed before the turn was complete' : null;
  },
  noLogprob({ asksLogprobs, isChat, isStream }: Call, { kind, outputIds }: Generated, at: number): string | null {
    if (!asksLogprobs && !isChat) return 'logprobs were not asked for';
    if (!isChat || !isStream || kind !== 'sglang') return null;
    return isSilent(outputIds, at) ? 'streams of SGLang chats leave out tokens without text' : null;
  },
  noVersion(_journal: Journal, _call: Call, _generated: Generated): string | null {
    return null;
  },
  drift(_journal: Journal, { isRerendered }: Call): string | null {
    return isRerendered ? 'the prompt was rendered anew' : null;
  },
};

/** A token that adds no text when it comes: it is special, or a byte of a letter that goes on. */
const isSilent = (ids: readonly number[], at: number): boolean =>
  isSpecial(ids[at]!) || (at < ids.length - 1 && shown(ids.slice(0, at + 1)).endsWith('\ufffd'));
