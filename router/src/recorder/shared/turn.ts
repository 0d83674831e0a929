import type { VersionSpan } from '../../generation/delta.ts';
import type { Seam } from '../../exchange.ts';
import type { ExchangeView as Exchange } from '../../phases/exchange-view.ts';

/** Where what the engine was given is not a continuation of what was recorded before, and why. */
export interface Drift {
  /**
   * `template`: the chat template rewrites history; `text`: the client sent other text; `tokens`: ids could not be kept exact; `lost`:
   * earlier turns of the session are not on record any more.
   */
  readonly kind: 'template' | 'text' | 'tokens' | 'lost';
  /** Position in the trajectory, in tokens, from which the ids differ. */
  readonly at: number;
}

/** Routed experts of a turn: raw bytes in a file of their own. */
export interface RoutedExperts {
  /** Relative to the data folder. */
  readonly file: string;
  readonly bytes: number;
  /** As the engine named them; null where it names none (SGLang: int32, [tokens - 1, layers, top_k]). */
  readonly dtype: string | null;
  readonly shape: readonly number[] | null;
}

/**
 * One turn of a trajectory as it really happened. Turns are a tree: a turn holds only the tokens that it adds to the first
 * `keeps` tokens of the trajectory that ends with its parent, so that n turns cost n times their own length.
 */
export interface Turn {
  /** Unique, and ordered by time as text: what pages of a listing go by. */
  readonly id: string;
  /** The session key; without one the id of the first turn of its line. */
  readonly session: string;
  /** Trajectories of one prompt (GRPO); '' when unknown. */
  readonly group: string;
  /** Whose it is, by the client's key where keys are set; ''. */
  readonly tenant: string;
  readonly parent: string | null;
  readonly keeps: number;
  /**
   * Several turns that differ in logprobs or versions fit as its parent, and the request named no session: it is the
   * newest of them. Left out: its parent is known.
   */
  readonly isAmbiguous?: boolean;
  /** 0 for the first of its line. */
  readonly index: number;
  readonly worker: string;
  readonly model: string;
  /** What the client called: `/generate`, `/v1/chat/completions`. */
  readonly path: string;
  /** Unix ms. */
  readonly startedAtMs: number;
  /** Milliseconds to the first byte of the answer; null where it was no stream: its first byte says nothing of the first token. */
  readonly ttftMs: number | null;
  /** Milliseconds from then to the last byte of the answer; of an answer that was no stream, all of them. */
  readonly generationMs: number;

  /** The tokens it adds, in order: first those it was asked with, then those that were sampled. */
  readonly ids: Int32Array;
  /** Same length: the engine's logprob of sampled tokens, NaN where it is not known; 0 for tokens that were not sampled. */
  readonly logprobs: Float64Array;
  /** Same length: 1 where sampled. */
  readonly mask: Uint8Array;
  /** In order, without gaps: each token that was sampled in this turn is in one of them. */
  readonly versions: readonly VersionSpan[];
  /** How many of the tokens that the turn adds were sampled and have no known logprob; null: it was stored before these were counted. */
  readonly unknownLogprobs: number | null;
  /** Tokens of prompt and answer as the engine counts them; null where it does not say. Those of an exact turn are known, but for the cached ones. */
  readonly promptTokens: number | null;
  readonly outputTokens: number | null;
  readonly cachedTokens: number | null;
  /** As the engine words it: `stop`, `length`, `abort`, …; null where it does not say. */
  readonly finishReason: string | null;
  readonly drift: Drift | null;
  /** Where another engine continued it after its engine had failed (`--resume`); `at` is a place in `ids`. Left out: one engine sampled all. */
  readonly seams?: readonly Seam[];
  readonly experts: RoutedExperts | null;
  /** Which tokens its sparse attention looked at ("indexer_topk"), as a file like that. Left out: it came with none. */
  readonly indexer?: RoutedExperts;
  /** The likeliest tokens at the place of each sampled one: JSON, a list of `[logprob, id, text]` for each. Left out: the request did not ask for them. */
  readonly topTokens?: Uint8Array;
  /** The client's request and the engine's answer as they passed (routed experts cut out), where they are kept. */
  readonly request: Uint8Array | null;
  readonly answer: Uint8Array | null;
  /** Which of the two are stored, and can't be read: what they were compressed with is gone. Left out: none. */
  readonly unreadable?: readonly ('request' | 'answer')[];
  /** Left out: its tokens are those that the engine read and sampled. false: they are not known, `request` and `answer` are all there is. */
  readonly isExact?: false;
  /** Of a chat: by what its client will know the call again, should the answer get lost. Left out where it named nothing. */
  readonly callKey?: string;
  /** Of a chat: which choice of `answer` it is, where `answer` has other ids for it, which came too late. Left out: the one with its ids. */
  readonly choice?: number;
  /** Left out: each token has its usual text, and the token that stopped the turn is not in its answer. */
  readonly texts?: TurnTexts;
}

/** The text of a turn's tokens, if it is not the usual text of each token. In latin1: a letter for each byte. */
export interface TurnTexts {
  /** So many tokens before the prompt have no text. */
  readonly framing?: number;
  /** Of what the turn adds before what was sampled. */
  readonly prompt?: string;
  /** Of what was sampled, as its client got it. */
  readonly answer?: string;
}

/** One session of a tenant. */
export interface ChatName {
  readonly session: string;
  readonly tenant: string;
}

/** Sessions of one name. */
export interface SessionName {
  readonly session: string;
  /** Left out, or undefined: of all tenants. */
  readonly tenant?: string | undefined;
}

/** What is learned of a turn after it was put. */
export interface TurnAmendment extends Pick<Turn, 'id' | 'versions'> {}

type Times = Pick<Turn, 'startedAtMs' | 'ttftMs' | 'generationMs'>;

/** The times of a request that is over, for its turns. */
export function timesOf({ startMs, firstByteMs, firstTokenMs, endMs }: Exchange, isStream: boolean): Times {
  const nowMs = performance.now();
  const firstMs = firstTokenMs ?? firstByteMs ?? startMs;
  return {
    startedAtMs: Math.round(Date.now() - nowMs + startMs),
    ttftMs: isStream ? firstMs - startMs : null,
    generationMs: (endMs ?? nowMs) - (isStream ? firstMs : startMs),
  };
}

/** The times that all turns of one call have, and no other call: a clock with nanoseconds. Each choice of a stream ends at a time of its own. */
export const callTimes = ({ startedAtMs, ttftMs, generationMs }: Times): string =>
  JSON.stringify([startedAtMs, ttftMs, ttftMs === null ? generationMs : null]);

/** Milliseconds from the request to the end of the answer. */
export const latencyOf = ({ ttftMs, generationMs }: Times): number => (ttftMs ?? 0) + generationMs;
