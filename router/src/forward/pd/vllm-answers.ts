import { isAborted, promptPlaces } from '../../engines/dialects/pairs.ts';
import { joinedExperts } from '../../generation/join-experts.ts';
import { bufferOf, sharedCopy } from '../../kit/bytes.ts';
import { JsonEdit, type MemberPlace, withMembers } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import { dataOf } from '../../kit/sse.ts';
import { type AnswerMerge, merge } from '../answer-merge.ts';
import type { BodyThread } from '../body-calls.ts';

/** What was read from a prefill engine's response, copied so that it can be sent between threads. */
export interface PrefillSaid {
  /** Its `kv_transfer_params`, byte for byte; null: there are none. */
  readonly params: Buffer | null;
  /** null: there is nothing that the decode engine does not know. */
  readonly known: Known | null;
  /** The whole response, because the request was aborted; null: it was not. */
  readonly aborted: Buffer | null;
}

/** What only the prefill engine knows, as it wrote it. */
export interface Known {
  readonly logprobs: Uint8Array | null;
  readonly idLogprobs: Uint8Array | null;
  readonly choiceLogprobs: Uint8Array | null;
  readonly experts: Uint8Array | null;
  readonly cached: Uint8Array | null;
}

export function readPrefill(body: Buffer): PrefillSaid {
  const answer = Json.object(body);
  if (answer === null) return { params: null, known: null, aborted: null };
  const params = answer.get('kv_transfer_params');
  if (params === null && isAborted(answer)) return { params: null, known: null, aborted: body };
  const { logprobs, idLogprobs, choiceLogprobs, experts, details } = promptPlaces(answer);
  const copyAt = (place: MemberPlace | null): Buffer | null =>
    ownCopy(place === null ? null : new Json(body, place.valueStart, place.to));
  // If the parameters have the number, the decode engine reports it.
  const isReported = params?.place('remote_prefill_cached_tokens') != null;
  const counted = isReported || details === null ? null : new Json(body, details.valueStart, details.to);
  const known: Known = {
    logprobs: copyAt(logprobs),
    idLogprobs: copyAt(idLogprobs),
    choiceLogprobs: copyAt(choiceLogprobs),
    experts: copyAt(experts),
    cached: ownCopy(counted?.get('cached_tokens') ?? null),
  };
  const hasAny = Object.values(known).some((value) => value !== null);
  return { params: params?.isObject === true ? ownCopy(params) : null, known: hasAny ? known : null, aborted: null };
}

const ownCopy = (json: Json | null): Buffer | null =>
  json === null || json.isNull ? null : bufferOf(sharedCopy([json.raw()]));

/** @returns null: there is nothing to add to a decode engine's response */
export function answerMergeOf(known: Known | null, thread: BodyThread): AnswerMerge | null {
  if (known === null) return null;
  return {
    name: 'what the prefill engine knows',
    responseBody: (_x, body) => merge(() => thread.run('withKnown', body, known)),
    responseEvent: (_x, event) => merge(() => thread.run('eventWithKnown', event, known)),
  };
}

/** As `withKnown`, for an event of a stream. An event whose data has several lines stays as it is. */
export function eventWithKnown(event: Buffer, known: Known): Buffer {
  const [start, end] = dataOf(event);
  return start < 0 ? event : withKnown(event, known, start, end);
}

/** A decode engine's complete response, with what the prefill engine knows. */
export function withKnown(bytes: Buffer, known: Known, start = 0, end = bytes.length): Buffer {
  const answer = Json.object(bytes, start, end);
  if (answer === null) return bytes;
  const places = promptPlaces(answer);
  const edit = new JsonEdit(bytes);
  const put = (place: MemberPlace | null, value: Uint8Array | null): void => {
    if (place !== null && value !== null) edit.replace(place.valueStart, place.to, bufferOf(value));
  };
  put(places.logprobs, known.logprobs);
  put(places.idLogprobs, known.idLogprobs);
  put(places.choiceLogprobs, known.choiceLogprobs);
  const { experts, details } = places;
  if (experts !== null && known.experts !== null) {
    put(experts, joinedExperts(bufferOf(known.experts), bytes.subarray(experts.valueStart, experts.to)));
  }
  if (details !== null && known.cached !== null) {
    const cached = { cached_tokens: bufferOf(known.cached) };
    if (!edit.set(details.valueStart, details.to, cached)) put(details, withMembers(EMPTY, cached));
  }
  return edit.result();
}

const EMPTY = Buffer.from('{}');
