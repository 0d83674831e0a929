import type { GenerateDelta } from '../../../engines/dialects/generate.ts';
import { Unreadable, logprobOf, type VersionSpan } from '../../../generation/delta.ts';
import { markOf } from '../../shared/experts-cutter.ts';
import { type Sampled, tokenIds, topTokens } from './sampled.ts';
import { indexerOf } from './tensors.ts';
import { namedSpans } from '../../../weights/version-spans.ts';

/** The samples of SGLang's `/generate`: of a whole response, or of the received events of a stream. */
export function readGenerate(deltas: readonly GenerateDelta[], isStream: boolean): Sampled[] {
  // A whole response lists its samples in their order.
  if (!isStream) return deltas.map((delta, index) => ({ ...sampledBy([delta], false), index }));
  const byIndex = Map.groupBy(deltas, ({ index }) => index);
  return Array.from(byIndex.values(), (list) => sampledBy(list, true));
}

/** @param events of one sample: each with all tokens so far (SGLang's default), or with the new ones (`--incremental-streaming-output`) */
function sampledBy(events: readonly GenerateDelta[], isStream: boolean): Sampled {
  const last = events.at(-1)!;
  const { count: total, index } = last;
  const own = (last.isQueueAbort ? idsBeforeAbort(events) : last.ids()) ?? [];
  const isWhole = total === own.length || events.length === 1;
  const parts = isWhole ? [last] : events;
  const ids = tokenIds(isWhole ? own : events.flatMap((event) => event.ids() ?? []));
  if (total !== null && ids.length !== total) throw new Unreadable(`${ids.length} ids of ${total} tokens in it`);
  const { indexer } = last;
  const { promptTokens, cachedTokens } = events.findLast((event) => event.promptTokens !== null) ?? last;
  return {
    index,
    ids,
    logprobs: logprobsOf(parts, ids),
    text: Buffer.from(parts.map((part) => part.text() ?? '').join('')),
    finishReason: last.finish,
    ...(isStream && last.spans().length === 0
      ? { spans: spansByEvent(events), endVersion: null }
      : namedSpans(last.version, last.spans())),
    promptTokens,
    cachedTokens,
    experts: events.reduce((mark, event) => Math.max(mark, markOf(event.experts())), -1),
    ...indexerOf(indexer),
    ...topTokens(
      inFull(parts, ids.length, (part) => part.top()),
      ids.length,
    ),
  };
}

/** The last event of a stream that ends in the engine's queue may have the last id only, which may have come before. */
function idsBeforeAbort(events: readonly GenerateDelta[]): readonly number[] | null {
  const last = events.at(-1)!;
  const ids = last.ids();
  const newest = events.at(-2);
  if (ids === null || newest === undefined || ids.length === last.count) return ids;
  const isCumulative = newest.idCount() === newest.count;
  const earlier = isCumulative ? newest.ids()! : events.slice(0, -1).flatMap((event) => event.ids() ?? []);
  return earlier.length === last.count ? earlier : [...earlier, ...ids];
}

/** A list with an item for each token. Some releases write it in full where ids are incremental. */
function inFull<T>(
  parts: readonly GenerateDelta[],
  length: number,
  listOf: (part: GenerateDelta) => readonly T[] | null,
): readonly T[] {
  const own = listOf(parts.at(-1)!) ?? [];
  return own.length === length ? own : parts.flatMap((part) => listOf(part) ?? []);
}

function logprobsOf(parts: readonly GenerateDelta[], ids: Int32Array): Float64Array | null {
  if (!parts.at(-1)!.hasLogprobs) return null;
  const triples = inFull(parts, ids.length, (part) => part.triples());
  if (triples.length !== ids.length || triples.some(([, id], i) => id !== ids[i])) {
    throw new Unreadable('its logprobs are of other tokens');
  }
  return Float64Array.from(triples, ([logprob]) => logprobOf(logprob));
}

/**
 * Events of a stream have the version of their new tokens. If the version changed from one event to the next, and several tokens are new,
 * it is not known which of them came before the change.
 */
function spansByEvent(events: readonly GenerateDelta[]): VersionSpan[] {
  const spans: VersionSpan[] = [];
  let start = 0;
  let known: string | null = null;
  for (const { count, version } of events) {
    const end = count ?? start;
    if (end <= start) continue;
    const isSure: boolean = start === 0 || version === known || end === start + 1;
    const own = isSure ? version : null;
    const before = spans.at(-1);
    if (before?.version === own) spans[spans.length - 1] = { ...before, to: end };
    else spans.push({ version: own, from: start, to: end });
    known = version;
    start = end;
  }
  return spans;
}
