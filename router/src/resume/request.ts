import type { Asked } from '../generation/asked.ts';
import type { Dialect } from '../generation/dialect.ts';
import { type Parameters, isNeutral, penalties, processors } from '../generation/parameters.ts';
import type { Members } from '../kit/json-edit.ts';
import { truthOf } from '../kit/truth.ts';

/** What a generation keeps of its request: the body may be large. */
export interface RequestFacts {
  readonly dialect: Dialect;
  /** Why it can't be continued exactly; null: it can. */
  readonly whyNot: string | null;
  readonly isStream: boolean;
  /** The most tokens that it may have; Infinity: as many as fit. */
  readonly limit: number;
  readonly least: number;
  readonly stops: readonly string[];
  /** The text of a response ends with its stop string. */
  readonly showsStop: boolean;
  /** The text of a response may have that of a stop token, if it has that of stop strings (vLLM 0.32). */
  readonly showsTokens: boolean;
  readonly asksForIds: boolean;
  readonly asksForUsage: boolean;
  /** The text of the response begins with the prompt. */
  readonly echoes: boolean;
  /** Ids of the prompt; null: it is a text, whose ids an engine may return. */
  readonly promptTokens: number | null;
}

export function factsOf(asked: Asked): RequestFacts {
  const { dialect, prompt, isOneOfIds, limit, least, stops } = asked;
  const isFlat = dialect.request.params === null;
  const isOne = isOneOfIds || (isFlat && prompt !== null && !prompt.isList);
  const hasParams = isFlat || !Array.isArray(asked.get(dialect.request.params));
  const tokens = asked.param('stop_token_ids');
  return {
    dialect,
    whyNot: reasonOf(asked) ?? (isOne && hasParams ? null : 'prompt'),
    isStream: asked.isStream,
    limit,
    least,
    stops,
    showsStop: asked.param('include_stop_str_in_output') === true || asked.param('no_stop_trim') === true,
    showsTokens: asked.param('skip_special_tokens') === false || (Array.isArray(tokens) && tokens.length > 0),
    asksForIds: asked.asksForIds,
    asksForUsage: optionsOf(asked).include_usage === true,
    echoes: isFlat && asked.param('echo') === true,
    promptTokens: isOneOfIds ? prompt!.count() : null,
  };
}

/** Members that ask for what has to be known of the response, where the client did not. @param showsStops see `StopText` */
const needed = ({ asksForIds, dialect }: Asked, showsStops: boolean): Members => ({
  ...(asksForIds ? {} : dialect.request.asksForIds),
  ...(showsStops ? { include_stop_str_in_output: 'true' } : {}),
});

/** The request as its first engine gets it. */
export const askedBody = (asked: Asked, showsStops: boolean): Buffer => asked.with(needed(asked, showsStops));

/** What a generation has so far. */
export interface SoFar {
  readonly ids: readonly number[];
  /** As an engine returned them; null: those of the request. */
  readonly promptIds: readonly number[] | null;
}

/** The request for the rest of a generation. `asked`: as its next engine would get it from the beginning. */
export function continuedBody(asked: Asked, { ids, promptIds }: SoFar, showsStops: boolean): Buffer {
  const { limit: most, least: fewest, promptScores, params: nested } = asked.dialect.request;
  const { limit, least } = asked;
  const edit = asked.edit();
  if (promptIds === null) edit.extendPrompt(ids.join(','));
  else edit.replacePrompts([`[${[...promptIds, ...ids].join(',')}]`]);
  const budget: Record<string, string> = limit === Infinity ? {} : { [most]: String(limit - ids.length) };
  if (least > 0) budget[fewest] = String(Math.max(0, least - ids.length));
  const scores = Object.entries(promptScores);
  const inParams = Object.fromEntries(scores.filter(([name]) => asked.params?.place(name)));
  if (nested === null) return edit.set({ ...budget, ...needed(asked, showsStops), ...inParams }).result();
  const atTop = Object.fromEntries(scores.filter(([name]) => asked.get(name) !== undefined));
  edit.set(atTop);
  const changed = { ...budget, ...inParams };
  return (Object.keys(changed).length === 0 ? edit : edit.setParams(changed)).result();
}

/** Parameters with which a generation can't be continued exactly from its tokens: an engine keeps more of it than they tell. By reason. */
const parameters: Readonly<Record<string, Parameters>> = {
  samples: { n: [1], best_of: [1] },
  beam: { use_beam_search: [false], beam_width: [0, 1] },
  // The state of a grammar begins with the first sampled token.
  grammar: {
    json_schema: [''],
    regex: [''],
    ebnf: [''],
    structural_tag: [''],
    structured_outputs: [],
    guided_json: [],
    guided_regex: [],
    guided_choice: [],
    guided_grammar: [],
    response_format: [],
  },
  // They count sampled tokens, and those of the prompt in another way or not.
  penalties,
  processors: { ...processors, repetition_detection: [] },
  stop_regex: { stop_regex: [''] },
  hidden_states: { return_hidden_states: [false] },
  // One array for all tokens, or a text or message made of them.
  form: {
    return_flat_raw_top_logprobs: [false],
    return_flat_raw_output_top_logprobs: [false],
    output_mode: ['tokens'],
  },
  media: {
    image_data: [],
    video_data: [],
    audio_data: [],
    features: [],
    content_parts: [],
    mm_payload: [],
    ec_transfer_params: [],
    positional_embed_overrides: [],
    input_embeds: [],
    prompt_embeds: [],
    multi_modal_data: [],
  },
  prompt: { suffix: [''], session_params: [], truncate_prompt_tokens: [], kv_transfer_params: [] },
};

/** Parameters that are read here. vLLM takes more than JSON's own truth values, and SGLang's `sampling_params` have no types. */
const TRUTHS = ['include_stop_str_in_output', 'no_stop_trim', 'skip_special_tokens', 'echo'];

/** What is read is what engines read: texts, for example, are numbers to some of them. */
function isPlain(asked: Asked): boolean {
  const { limit, least, asksForIds } = asked.dialect.request;
  const numbers = [asked.param(limit), asked.param(least)];
  const truths = [...TRUTHS.map((name) => asked.param(name)), optionsOf(asked).include_usage];
  // All engines read it in one way, and refuse the rest.
  const read = Object.keys(asksForIds ?? {}).map((name) => truthOf(asked.get(name)) ?? asked.get(name));
  const areOf = (type: string, values: readonly unknown[]): boolean =>
    values.every((value) => value === undefined || value === null || typeof value === type);
  return areOf('number', numbers) && areOf('boolean', [...truths, ...read]);
}

const optionsOf = (asked: Asked): { readonly include_usage?: unknown } => asked.get('stream_options') ?? {};

/** @returns the reason why a generation can't be continued; null: there is none */
function reasonOf(asked: Asked): string | null {
  if (!isPlain(asked)) return 'form';
  for (const [reason, names] of Object.entries(parameters)) {
    for (const [name, neutral] of Object.entries(names)) {
      if (!isNeutral(asked.get(name), neutral) || !isNeutral(asked.param(name), neutral)) return reason;
    }
  }
  return null;
}
