import { JsonEdit } from '../../kit/json-edit.ts';
import { MemberFinder, readString, scanItems } from '../../kit/json-scan.ts';
import { dataOf } from '../../kit/sse.ts';
import { bufferOf, sharedCopy } from '../../kit/bytes.ts';
import type { BodyThread } from '../body-calls.ts';
import { type AnswerMerge, merge } from '../answer-merge.ts';
import { joinedExperts } from './routed-experts.ts';

/** Members of a response of vLLM 0.32.0: at its top, in its first choice, in its usage. */
const inAnswer = new MemberFinder([
  'kv_transfer_params',
  'choices',
  'usage',
  'prompt_logprobs',
  'prompt_token_id_logprobs',
]);
const inChoice = new MemberFinder(['prompt_logprobs', 'routed_experts']);
const inUsage = new MemberFinder(['prompt_tokens_details']);
const inDetails = new MemberFinder(['cached_tokens']);
const inParams = new MemberFinder(['remote_prefill_cached_tokens']);

const OPEN_OBJECT = 0x7b;
type Span = readonly [start: number, end: number];

/** Spans of members in a response; null: the member is missing. */
interface Places {
  readonly params: Span | null;
  readonly logprobs: Span | null;
  readonly idLogprobs: Span | null;
  readonly choiceLogprobs: Span | null;
  readonly experts: Span | null;
  readonly details: Span | null;
  readonly cached: Span | null;
}

/** What was read from a prefill engine's response, copied so that it can be sent between threads. */
export interface PrefillSaid {
  /** Its `kv_transfer_params`, byte for byte; null: there are none. */
  readonly params: Buffer | null;
  /** null: there is nothing that the decode engine does not know. */
  readonly known: Known | null;
}

export function readPrefill(answer: Buffer): PrefillSaid {
  const found = placesIn(answer, 0, answer.length);
  const text = (span: Span | null): Buffer | null =>
    span === null || isNull(answer, span) ? null : answer.subarray(span[0], span[1]);
  const params = text(found.params);
  const experts = found.experts === null ? null : readString(answer, found.experts[0], found.experts[1]);
  const parts = {
    logprobs: text(found.logprobs),
    idLogprobs: text(found.idLogprobs),
    choiceLogprobs: text(found.choiceLogprobs),
    experts: experts === null ? null : Buffer.from(experts),
    // If the parameters have the number, the decode engine reports it.
    cached: params !== null && hasMember(params, inParams) ? null : text(found.cached),
  };
  const isObject = params !== null && params[0] === OPEN_OBJECT;
  const known: Known = {
    logprobs: ownCopy(parts.logprobs),
    idLogprobs: ownCopy(parts.idLogprobs),
    choiceLogprobs: ownCopy(parts.choiceLogprobs),
    experts: ownCopy(parts.experts),
    cached: ownCopy(parts.cached),
  };
  const hasAny = Object.values(known).some((value) => value !== null);
  return { params: isObject ? ownCopy(params) : null, known: hasAny ? known : null };
}

const ownCopy = (bytes: Buffer | null): Buffer | null => (bytes === null ? null : bufferOf(sharedCopy([bytes])));

/** What only the prefill engine knows. */
export interface Known {
  readonly logprobs: Uint8Array | null;
  readonly idLogprobs: Uint8Array | null;
  readonly choiceLogprobs: Uint8Array | null;
  readonly experts: Uint8Array | null;
  readonly cached: Uint8Array | null;
}

/** @returns null: there is nothing to add to a decode engine's response */
export function answerMergeOf(known: Known | null, thread: BodyThread): AnswerMerge | null {
  if (known === null) return null;
  const bytes = Object.values(known).reduce<number>((sum, part: Uint8Array | null) => sum + (part?.length ?? 0), 0);
  return {
    name: 'what the prefill engine knows',
    bytes,
    responseBody: (_x, body) => merge(() => thread.run('withKnown', body, known)),
    responseEvent: (_x, event) => merge(() => thread.run('eventWithKnown', event, known)),
  };
}

/** A decode engine's complete response, with what the prefill engine knows. */
export const withKnown = (body: Buffer, known: Known): Buffer => merged(body, placesIn(body, 0, body.length), known);

/** As `withKnown`, for an event of a stream. */
export function eventWithKnown(event: Buffer, known: Known): Buffer {
  const [start, end] = dataOf(event);
  // An event whose data has several lines stays as it is.
  return start < 0 ? event : merged(event, placesIn(event, start, end), known);
}

function merged(bytes: Buffer, to: Places, known: Known): Buffer {
  const edit = new JsonEdit(bytes);
  const put = (span: Span | null, value: Uint8Array | null): void => {
    if (span !== null && value !== null) edit.replace(...span, bufferOf(value));
  };
  put(to.logprobs, known.logprobs);
  put(to.idLogprobs, known.idLogprobs);
  put(to.choiceLogprobs, known.choiceLogprobs);
  const own = to.experts === null ? null : readString(bytes, to.experts[0], to.experts[1]);
  const joined = own === null || known.experts === null ? null : joinedExperts(bufferOf(known.experts).toString(), own);
  if (joined !== null) put(to.experts, Buffer.from(`"${joined}"`));
  if (to.details !== null && known.cached !== null) {
    const cached = bufferOf(known.cached);
    if (isNull(bytes, to.details)) put(to.details, Buffer.from(`{"cached_tokens":${cached.toString()}}`));
    else edit.set(...to.details, { cached_tokens: cached });
  }
  return edit.result();
}

function placesIn(bytes: Buffer, start: number, end: number): Places {
  const top = spansOf(inAnswer, 5, bytes, [start, end]);
  const choice = spansOf(inChoice, 2, bytes, firstItem(bytes, top[1]!));
  const [details = null] = spansOf(inUsage, 1, bytes, top[2]!);
  const [cached = null] = spansOf(inDetails, 1, bytes, details);
  return {
    params: top[0]!,
    logprobs: top[3]!,
    idLogprobs: top[4]!,
    choiceLogprobs: choice[0]!,
    experts: choice[1]!,
    details,
    cached,
  };
}

/** The spans of `count` members; null where the object or the member is missing. */
function spansOf(finder: MemberFinder, count: number, bytes: Buffer, object: Span | null): (Span | null)[] {
  const spans = new Int32Array(2 * count);
  if (object === null || finder.find(bytes, object[0], object[1], spans) < 0) spans.fill(-1);
  return Array.from({ length: count }, (_, i) => (spans[2 * i]! < 0 ? null : [spans[2 * i]!, spans[2 * i + 1]!]));
}

function firstItem(bytes: Buffer, list: Span | null): Span | null {
  let item: Span | null = null;
  if (list !== null) {
    scanItems(bytes, list[0], list[1], (start, end) => {
      item = [start, end];
      return false;
    });
  }
  return item;
}

const hasMember = (object: Buffer, finder: MemberFinder): boolean =>
  spansOf(finder, 1, object, [0, object.length])[0] !== null;

const isNull = (bytes: Buffer, [start, end]: Span): boolean => bytes.toString('latin1', start, end) === 'null';
