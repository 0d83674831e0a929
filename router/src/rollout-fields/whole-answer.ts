import { hideExperts, hideIds, hideUnasked } from '../engines/dialects/asking.ts';
import { type ChoiceDelta, type ChoicesAnswer, readChoices } from '../engines/dialects/choices.ts';
import type { Json } from '../kit/json-members.ts';
import { type AnswerPlan, Choice, type Part, logprobsOf } from './choice.ts';
import { type RawObject, membersOf, toJson, writeList, writeObject } from './raw-json.ts';

/** What the router knows of a request's course, by the names of Fireworks. */
export type PerfMetrics = Readonly<Record<string, number | string>>;

/** A choice of a whole response, read. */
export interface WholeChoice {
  readonly delta: ChoiceDelta;
  /** As the engine writes it. */
  readonly index: Buffer;
  readonly part: Part;
  readonly promptIds: readonly number[];
  /** What stays of it, in its order: all members that none of the fields is about. */
  readonly rest: RawObject;
  readonly rawOutput: Buffer | null;
}

/** A whole response of an engine, read. */
export interface WholeAnswer {
  /** Its members in their order, without what only the router asked for. `choices` are the engine's. */
  readonly top: RawObject;
  readonly choices: readonly WholeChoice[];
  /** null: the choices stay as they are. */
  readonly promptIds: readonly number[] | null;
  readonly json: Json;
}

/** @returns null: it is no response with choices, but an error, or something unknown */
export function readAnswer(body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): WholeAnswer | null {
  const answer = readChoices(body, 0);
  if (answer === null || !answer.hasChoices) return null;
  const { fields } = plan;
  const choices = changesChoices(plan) ? answer.deltas.map((delta) => readChoice(delta, answer, plan)) : [];
  const top = membersOf(answer.json);
  if (fields.matrix !== null) hideExperts(top, fields.asked);
  if (fields.echo !== null) hideUnasked(top, fields.asked);
  if (!fields.returnTokenIds) hideIds(top);
  const promptIds = choices[0]?.promptIds ?? null;
  if (fields.returnTokenIds && fields.isChat && promptIds !== null) top.set('prompt_token_ids', toJson(promptIds));
  if (perf !== null) {
    top.set('perf_metrics', toJson({ ...countsOf(answer.json.get('usage')), ...queuedSecs(answer), ...perf }));
  }
  return { top, choices, promptIds, json: answer.json };
}

/** The members that clients know from vLLM's responses are in SGLang's chats elsewhere. */
const changesChoices = ({ fields, engine }: AnswerPlan): boolean =>
  fields.rawOutput ||
  fields.hasContent ||
  fields.echo !== null ||
  (fields.returnTokenIds && fields.isChat && engine === 'sglang');

function readChoice(delta: ChoiceDelta, answer: ChoicesAnswer, plan: AnswerPlan): WholeChoice {
  const { fields } = plan;
  const choice = new Choice(plan);
  const part = choice.add(delta, answer, null);
  const rest = membersOf(delta.json);
  const index = rest.get('index') ?? toJson(0);
  for (const name of ['index', 'text', 'logprobs']) rest.delete(name);
  if (fields.matrix !== null) rest.delete('routed_experts');
  hideIds(rest);
  hideUnasked(rest, fields.asked);
  const rawOutput = fields.rawOutput ? choice.rawOutput() : null;
  return { delta, index, part, promptIds: choice.promptIds, rest, rawOutput };
}

function queuedSecs({ deltas }: ChoicesAnswer): PerfMetrics {
  const secs = deltas[0]?.info?.queuedSecs ?? null;
  return secs !== null && secs >= 0 ? { 'prefill-queue-duration': secs } : {};
}

/** The names of Fireworks for what an engine says in `usage`. */
export function countsOf(usage: Json | null): PerfMetrics {
  const prompt = usage?.get('prompt_tokens')?.number() ?? null;
  const cached = usage?.get('prompt_tokens_details')?.get('cached_tokens')?.number() ?? null;
  return {
    ...(prompt !== null && { 'prompt-tokens': prompt }),
    ...(cached !== null && { 'cached-prompt-tokens': cached }),
  };
}

/** A whole response as the client gets it. */
export function wholeAnswer(body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): Buffer {
  const answer = readAnswer(body, plan, perf);
  if (answer === null) return body;
  const { top, choices } = answer;
  if (choices.length > 0) top.set('choices', writeList(choices.map((choice) => writeChoice(choice, plan))));
  return writeObject(top);
}

function writeChoice({ delta, index, part, promptIds, rest, rawOutput }: WholeChoice, { fields }: AnswerPlan): Buffer {
  const made: RawObject = new Map([['index', index]]);
  if (!fields.isChat) made.set('text', toJson(part.text));
  for (const [name, value] of rest) made.set(name, value);
  made.set('logprobs', logprobsOf(delta.json.get('logprobs'), part, fields));
  if (fields.returnTokenIds) {
    made.set('token_ids', toJson(part.ids.slice(part.echoed)));
    if (!fields.isChat) made.set('prompt_token_ids', toJson(promptIds));
  }
  if (rawOutput !== null) made.set('raw_output', rawOutput);
  return writeObject(made);
}
