import { completed } from '../../kit/json-complete.ts';
import { JsonEdit } from '../../kit/json-edit.ts';
import { scanItems } from '../../kit/json-scan.ts';
import { truthOf } from '../../kit/truth.ts';
import type { RequestedFields, EngineRequest } from './chat.ts';
import { FromCompletion } from './chat-from-completion.ts';

const OPENING_BRACE = 0x7b;
const OPENING_BRACKET = 0x5b;
const NOTHING = Buffer.alloc(0);

/** An answer as its client would have got it without the router. */
export interface ClientCopy {
  readonly bytes: Buffer;
  /** There were ids of sampled tokens in it. */
  readonly hasIds: boolean;
}

/** What its client asked for, and in which form its engine was asked. */
export interface Asked {
  readonly form: EngineRequest['form'];
  readonly requested: RequestedFields;
}

/** The beginning of an answer, or of an event of a stream, up to a value: as its client gets it, completed. */
export function clientBeginning(
  beginning: Buffer,
  isStream: boolean,
  asked: Asked,
  begun: readonly string[],
): ClientEvent {
  const bytes = completed(beginning);
  return isStream ? clientEvent(bytes, asked, begun) : { bytes: clientCopy(bytes, asked).bytes, begun };
}

/** @param bytes a whole answer */
export function clientCopy(bytes: Buffer, { form, requested }: Asked): ClientCopy {
  if (form !== 'completion') return withoutOurs(bytes, requested);
  const fromCompletion = new FromCompletion(requested);
  return { bytes: fromCompletion.body(bytes), hasIds: fromCompletion.hasIds };
}

/** An event of a stream as its client gets it, and the choices that have begun by then. */
export interface ClientEvent {
  readonly bytes: Buffer;
  readonly begun: readonly string[];
}

/** @param begun the choices that had begun before this event */
export function clientEvent(event: Buffer, { form, requested }: Asked, begun: readonly string[]): ClientEvent {
  if (form !== 'completion') return { bytes: withoutOurs(event, requested).bytes, begun };
  const fromCompletion = new FromCompletion(requested, begun);
  return { bytes: fromCompletion.event(event), begun: fromCompletion.begun };
}

/**
 * Cuts out of a chat's answer, or of an event of its stream, what only the router asked for; all other bytes stay.
 * @param bytes the JSON, or an event with it
 */
export function withoutOurs(bytes: Buffer, requested: RequestedFields): ClientCopy {
  const start = bytes.indexOf(OPENING_BRACE);
  if (start < 0) return { bytes, hasIds: false };
  const wants = (name: string): boolean => requested[name] === true;
  const wantsTokenIds = wants('return_token_ids');
  const options = requested.stream_options as { readonly continuous_usage_stats?: unknown } | null | undefined;
  const hasCounts = bytes.subarray(0, start).includes('data:') && truthOf(options?.continuous_usage_stats) !== true;
  const edit = new JsonEdit(bytes);
  /** Its request did not ask for them, and got them by an option. */
  const hidesExperts = requested.return_routed_experts === false;
  let hasIds = false;
  let hasChoices = false;
  let isOursAlone = false;

  const editChoice = (from: number, to: number): void => {
    hasChoices = true;
    edit.members(from, to, (is, { valueStart, to: valueEnd }) => {
      if (is('meta_info')) {
        hasIds = true;
        if (!wants('return_meta_info')) return false;
        if (hidesExperts) edit.members(valueStart, valueEnd, (isNamed) => !isNamed('routed_experts'));
        return true;
      }
      if (hidesExperts && is('routed_experts')) return false;
      // SGLang has it beside `token_ids`, and only where it was asked for.
      if (is('prompt_token_ids')) return wants('return_prompt_token_ids') || wantsTokenIds;
      if (is('token_ids')) {
        if (bytes[valueStart] !== OPENING_BRACKET) return true;
        hasIds = true;
        if (!wantsTokenIds) edit.replace(valueStart, valueEnd, 'null');
      } else if (is('logprobs') && !wants('logprobs')) edit.replace(valueStart, valueEnd, 'null');
      return true;
    });
  };

  const editExtension = (from: number, to: number): boolean => {
    const own = new JsonEdit(bytes);
    let kept = 0;
    own.members(from, to, (is) => {
      if (is('output_ids')) hasIds = true;
      const stays =
        !(is('output_ids') && !wants('return_output_ids_in_sglext')) &&
        !(is('input_ids') && !wants('return_input_ids_in_sglext')) &&
        !(hidesExperts && is('routed_experts'));
      if (stays) kept++;
      return stays;
    });
    if (kept === 0) return false;
    if (!own.isEmpty) edit.replace(from, to, cutOut(own.result(), from, bytes.length - to));
    return true;
  };

  edit.members(start, bytes.length, (is, { valueStart, to }) => {
    if (is('choices')) {
      scanItems(bytes, valueStart, to, (from, end) => editChoice(from, end));
      return true;
    }
    // Of all choices together it is the client's; with an event of one of them it is ours.
    if (is('usage') && hasCounts && hasChoices) return false;
    if (is('prompt_token_ids') && !wantsTokenIds) edit.replace(valueStart, to, 'null');
    if (!is('sglext') || bytes[valueStart] !== OPENING_BRACE) return true;
    const stays = editExtension(valueStart, to);
    isOursAlone ||= !stays;
    return stays;
  });
  return { bytes: isOursAlone && !hasChoices ? NOTHING : edit.result(), hasIds };
}

/** The bytes without so many at the beginning and so many at the end. */
const cutOut = (bytes: Buffer, before: number, after: number): Buffer => bytes.subarray(before, bytes.length - after);
