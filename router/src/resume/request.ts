import { JsonEdit, type Members } from '../kit/json-edit.ts';
import { keyIs, scanMembers } from '../kit/json-scan.ts';
import { reasonOf } from './reasons.ts';

/** The APIs whose generations can be continued: SGLang's `/generate`, `/v1/completions` of both engines, vLLM's `/inference/v1/generate`. */
export type Form = 'generate' | 'completions' | 'inference';

const forms: ReadonlyMap<string, Form> = new Map([
  ['/generate', 'generate'],
  ['/v1/completions', 'completions'],
  ['/inference/v1/generate', 'inference'],
]);

/** @param target path and query @returns null: its responses are not understood */
export function formOf(target: string): Form | null {
  const query = target.indexOf('?');
  return forms.get(query < 0 ? target : target.slice(0, query)) ?? null;
}

/** Where a form has what is read here, and what engines take where a request does not say. */
const shapes = {
  generate: { prompts: ['input_ids', 'text'], limit: 'max_new_tokens', least: 'min_new_tokens', defaultLimit: 128 },
  completions: { prompts: ['prompt'], limit: 'max_tokens', least: 'min_tokens', defaultLimit: 16 },
  inference: { prompts: ['token_ids'], limit: 'max_tokens', least: 'min_tokens', defaultLimit: 16 },
} as const;

interface Place {
  readonly start: number;
  readonly end: number;
}

/** What has to be known of a request to continue its generation. */
export interface Asked {
  readonly form: Form;
  /** Why it can't be continued exactly; '' if it can. */
  readonly whyNot: string;
  readonly isStream: boolean;
  /** The most tokens that it may have; Infinity: as many as fit. */
  readonly limit: number;
  readonly least: number;
  readonly stops: readonly string[];
  /** The text of a response ends with its stop string. */
  readonly showsStop: boolean;
  /** The text of a response may have that of a stop token, if it has that of stop strings (vLLM 0.32). */
  readonly showsTokens: boolean;
  /** Of `/v1/completions`: the request asks for ids itself. */
  readonly asksForIds: boolean;
  readonly asksForUsage: boolean;
  /** The text of the response begins with the prompt. */
  readonly echoes: boolean;
  /** The prompt's ids; null: it is a text, whose ids an engine may tell. */
  readonly prompt: Place | null;
  /** The prompt, of whatever kind, with its key. */
  readonly promptMember: Place | null;
  /** The sampling parameters; of completions the body itself. */
  readonly params: Place | null;
}

const STREAM_OPTIONS = 'stream_options';
const OPENING_BRACKET = 0x5b;
const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** @returns null: it is no JSON object, which its engine will refuse */
export function readAsked(form: Form, body: Buffer): Asked | null {
  const { prompts, limit, least, defaultLimit } = shapes[form];
  const top = new Map<string, unknown>();
  const places = new Map<string, Place>();
  let promptMember: Place | null = null;
  const after = scanMembers(body, 0, body.length, (keyStart, keyEnd, start, end) => {
    const prompt = prompts.find((name) => keyIs(body, keyStart, keyEnd, name));
    if (prompt === undefined) {
      const name = body.toString('latin1', keyStart, keyEnd);
      places.set(name, { start, end });
      top.set(name, valueOf(body, start, end));
    } else if (body[start] !== 0x6e) {
      places.set(prompt, { start, end });
      // Two prompts: the engine refuses that.
      promptMember = promptMember === null ? { start: keyStart - 1, end } : { start: -1, end: -1 };
    }
  });
  if (after < 0) return null;
  const isFlat = form === 'completions';
  const given = isFlat ? Object.fromEntries(top) : (top.get('sampling_params') ?? {});
  const params = (typeof given === 'object' && !Array.isArray(given) ? given : {}) as Readonly<Record<string, unknown>>;
  const place = prompts.map((name) => places.get(name)).find((found) => found !== undefined) ?? null;
  const isIds = place !== null && body[place.start] === OPENING_BRACKET;
  const isOneOfIds = isIds && isDigit(body[afterSpace(body, place.start + 1)]);
  const isText = place !== null && !isIds && isFlat;
  const isOne = (isOneOfIds || isText) && promptMember !== null && (promptMember as Place).start >= 0;
  const stop = params.stop ?? [];
  const options = (top.get(STREAM_OPTIONS) ?? {}) as { readonly include_usage?: unknown };
  const whyNot = reasonOf([Object.fromEntries(top), params]);
  return {
    form,
    whyNot: whyNot !== '' ? whyNot : isOne && !Array.isArray(given) ? '' : 'prompt',
    isStream: top.get('stream') === true,
    limit: params[limit] === null ? Infinity : (numberOf(params[limit]) ?? defaultLimit),
    least: numberOf(params[least]) ?? 0,
    stops: (Array.isArray(stop) ? (stop as unknown[]) : [stop]).filter(
      (text): text is string => typeof text === 'string' && text !== '',
    ),
    showsStop: params.include_stop_str_in_output === true || params.no_stop_trim === true,
    showsTokens: params.skip_special_tokens === false || isNonEmpty(params.stop_token_ids),
    asksForIds: !isFlat || top.get('return_token_ids') === true,
    echoes: isFlat && params.echo === true,
    asksForUsage: options.include_usage === true,
    prompt: isOneOfIds ? place : null,
    promptMember,
    params: isFlat ? null : (places.get('sampling_params') ?? null),
  };
}

/** The request as its first engine gets it: it asks for what has to be known of the response. @param showsStops see `StopText` */
export function withIdsAsked(body: Buffer, asked: Asked, showsStops: boolean): Buffer {
  const members: Record<string, string> = {};
  if (!asked.asksForIds) members.return_token_ids = 'true';
  if (showsStops) members.include_stop_str_in_output = 'true';
  return Object.keys(members).length === 0 ? body : edited(body, members);
}

/** What a generation has so far. */
export interface SoFar {
  readonly ids: readonly number[];
  /** As an engine returned them; null: those of the request. */
  readonly promptIds: readonly number[] | null;
}

/** The request for the rest of a generation. `body`: as its next engine would get it from the beginning. */
export function continuedBody(body: Buffer, asked: Asked, { ids, promptIds }: SoFar, showsStops: boolean): Buffer {
  const { form, params, limit, least, prompt, promptMember } = asked;
  const shape = shapes[form];
  const edit = new JsonEdit(body);
  const sampled = ids.join(',');
  if (promptIds === null) edit.replace(prompt!.end - 1, prompt!.end - 1, `,${sampled}`);
  else
    edit.replace(promptMember!.start, promptMember!.end, `"${shape.prompts[0]}":[${promptIds.join(',')},${sampled}]`);
  const budget: Record<string, string> = limit === Infinity ? {} : { [shape.limit]: String(limit - ids.length) };
  if (least > 0) budget[shape.least] = String(Math.max(0, least - ids.length));
  const members: Record<string, string> = {};
  if (form === 'completions') {
    Object.assign(members, budget);
    if (!asked.asksForIds) members.return_token_ids = 'true';
    if (showsStops) members.include_stop_str_in_output = 'true';
    replaceIfThere(body, 0, body.length, ['echo', 'prompt_logprobs'], ['false', 'null'], members);
  } else {
    // The scores of the prompt came with the first part; those of sampled tokens would be among them now.
    replaceIfThere(body, 0, body.length, ['logprob_start_len'], ['-1'], members);
    if (params === null) members.sampling_params = `{"${shape.limit}":${budget[shape.limit]}}`;
    else {
      replaceIfThere(body, params.start, params.end, ['prompt_logprobs'], ['null'], budget);
      edit.set(params.start, params.end, budget);
    }
  }
  edit.set(0, body.length, members);
  return edit.result();
}

/** How many ids the prompt of a request has. */
export function countIds(body: Buffer, { start, end }: Place): number {
  let commas = 0;
  for (let at = body.indexOf(',', start); at >= 0 && at < end; at = body.indexOf(',', at + 1)) commas++;
  return commas + 1;
}

function replaceIfThere(
  body: Buffer,
  start: number,
  end: number,
  names: readonly string[],
  values: readonly string[],
  members: Record<string, string>,
): void {
  scanMembers(body, start, end, (keyStart, keyEnd) => {
    const i = names.findIndex((name) => keyIs(body, keyStart, keyEnd, name));
    if (i >= 0) members[names[i]!] = values[i]!;
  });
}

function edited(body: Buffer, members: Members): Buffer {
  const edit = new JsonEdit(body);
  edit.set(0, body.length, members);
  return edit.result();
}

/** undefined: it is no JSON, which the engine will refuse. */
function valueOf(body: Buffer, start: number, end: number): unknown {
  try {
    return JSON.parse(body.toString('utf8', start, end)) as unknown;
  } catch {
    return undefined;
  }
}

const isNonEmpty = (value: unknown): boolean => Array.isArray(value) && value.length > 0;

const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : null);

function afterSpace(body: Buffer, start: number): number {
  let at = start;
  while (body[at]! <= 0x20) at++;
  return at;
}
