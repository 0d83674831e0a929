import { isSpecial } from '../../../simulator/src/tokens/tokenizer.ts';
import { shown } from './hard-text.ts';
import type { Call, Generated, Journal } from './journal.ts';

/** So long after an answer the engine's weights are asked for, at most. */
const QUESTION_MS = 10_000;

/** Why something is not known, in the words of the guides; null: there is no reason, so it has to be known. */
export const causeOf = {
  /** A turn is missing, or its end is. */
  loss({ routerDeaths, generated }: Journal, call: Call): string | null {
    const { name, sentAt, endedAt, finish, ending } = call;
    // Ids may come after the finish reason.
    const isAhead = ending === 'raced' || ending === 'left';
    const mayLackIds = generated.some((one) => one.call === name && causeOf.cut(call, one, Infinity) !== null);
    // When a stream that its client closed is written, nothing tells.
    const until = finish === '' || (isAhead && mayLackIds) ? Infinity : endedAt;
    const isKilled = routerDeaths.some((at) => sentAt < at && at < until);
    return isKilled ? 'the router was killed before the turn was complete' : null;
  },
  /** Only the first `count` tokens of a stream that broke off are on record. */
  cut({ isChat, isStream }: Call, { kind, outputIds }: Generated, count: number): string | null {
    if (!isChat || !isStream || kind !== 'sglang') return null;
    const silent = outputIds.findIndex((_, at) => isSilent(outputIds, at, 'abort'));
    return silent >= 0 && count >= silent ? 'streams of SGLang chats leave out tokens without text' : null;
  },
  /** A stream has ended, and the record does not say why: it may have more tokens. */
  noEnd(journal: Journal, call: Call, { kind, engineUrl }: Generated): string | null {
    const { isChat, isStream, leavesAtFinish, endedMs } = call;
    if (!isChat || !isStream || kind !== 'sglang') return null;
    if (leavesAtFinish) return 'SGLang sends the ids of a chat last, and its client was gone';
    if (wasChanged(journal, engineUrl, endedMs)) return 'the engine was killed before it sent the ids';
    return causeOf.loss(journal, call);
  },
  noLogprob(
    { asksLogprobs, isChat, isStream }: Call,
    { kind, outputIds, finish }: Generated,
    at: number,
  ): string | null {
    if (!asksLogprobs && !isChat) return 'logprobs were not asked for';
    if (!isChat || !isStream || kind !== 'sglang') return null;
    return isSilent(outputIds, at, finish) ? 'streams of SGLang chats leave out tokens without text' : null;
  },
  noVersion(
    journal: Journal,
    { isChat, isStream, sentAt, endedMs }: Call,
    { kind, isTorn, engineUrl }: Generated,
  ): string | null {
    if (isTorn) return 'the engine broke off';
    const isAsked = kind === 'vllm' || (isChat && isStream);
    if (isAsked && journal.routerDeaths.some((at) => sentAt < at))
      return 'the router was killed before the engine answered its question';
    const isChanged = wasChanged(journal, engineUrl, endedMs);
    return isAsked && isChanged ? 'the weights were updated past the router, or the engine was away' : null;
  },
  drift(call: Call, kind: string): string | null {
    const { isRerendered, endsInToken } = call;
    if (kind === 'text' && (endsInToken || continuesBroken(call)))
      return 'the part of an answer that the client sends ends inside a character';
    return kind === 'template' && isRerendered ? 'the prompt was rendered anew' : null;
  },
};

/** What its client got of a truncated answer ends with U+FFFD, which bytes of any letter read as. */
export const continuesBroken = ({ isChat, parent }: Call): boolean =>
  !isChat && parent !== null && (parent.finish === '' || parent.finish === 'abort') && parent.text.endsWith('\ufffd');

/** The engine was killed or got weights, before this time or soon after it. */
const wasChanged = ({ changes }: Journal, engine: string, ms: number): boolean =>
  changes.some(({ engineUrl, atMs }) => engineUrl === engine && atMs < ms + QUESTION_MS);

/** A token that adds no text when it comes: it is special, or a byte of a letter that goes on, or would have. */
const isSilent = (ids: readonly number[], at: number, finish: Generated['finish']): boolean =>
  isSpecial(ids[at]!) ||
  ((at < ids.length - 1 || finish === 'abort') && shown(ids.slice(0, at + 1)).endsWith('\ufffd'));
