import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { call, eventsOf } from './call.ts';
import { folderOf } from './installed.ts';

/** A trajectory as its client has it (text), and as the engines say that it was (the rest). */
export interface Line {
  readonly text: string;
  readonly ids: readonly number[];
  readonly mask: readonly number[];
  readonly logprobs: readonly number[];
}

export const emptyLine: Line = { text: '', ids: [], mask: [], logprobs: [] };

/** What an engine says of one answer. */
export interface Generated {
  readonly text: string;
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  /** '' where the answer broke off. */
  readonly finish: string;
  readonly promptTokens: number;
  /** base64 */
  readonly experts: string | undefined;
}

interface Tokenizer {
  added_tokens: { id: number; content: string }[];
  model: { vocab: Record<string, number> };
}

const tokenizer = JSON.parse(readFileSync(join(folderOf('moe'), 'tokenizer.json'), 'utf8')) as Tokenizer;
const literals = new Map(tokenizer.added_tokens.map(({ id, content }) => [id, content]));
export const END_OF_TURN = tokenizer.added_tokens.find(({ content }) => content === '<|im_end|>')!.id;
/** Byte-level spelling: printable ASCII is itself, `Ġ` a space, `Ċ` a line feed. */
const letters = Object.entries(tokenizer.model.vocab).filter(([spelled]) => !/^[!-~ĠĊ]+$/.test(spelled));
const halves = new Set(letters.map(([, id]) => id));

/** Nothing but whole letters are sampled with it, as from a model that has learned its language. */
export const lettersOnly = Object.fromEntries(letters.map(([, id]) => [String(id), -100]));

/** What an answer may end with that its text does not show: what stopped it, a letter that has only begun. */
const mayBeHidden = (id: number): boolean => literals.has(id) || halves.has(id);

/** The ids that an engine makes of a text. */
export async function encodedBy(engine: string, text: string): Promise<number[]> {
  if (text === '') return [];
  const answer = await call(engine, '/tokenize', { body: { prompt: text, model: 'tiny', add_special_tokens: false } });
  assert.equal(answer.status, 200, answer.body);
  return (JSON.parse(answer.body) as { tokens: number[] }).tokens;
}

/**
 * Holds what an engine was asked against a line that goes on with more text: all that was sampled stands as it was sampled,
 * but for what its client has not sent back. @returns how many of the line's ids were sent
 */
export async function assertGoesOn(engine: string, { ids }: Line, more: string, asked: number[]): Promise<number> {
  let seen = ids.length;
  while (seen > 0 && mayBeHidden(ids[seen - 1]!)) seen--;
  for (let kept = ids.length; kept >= seen; kept--) {
    for (let from = seen; from <= kept; from++) {
      const stop = ids.slice(from, kept).map((id) => literals.get(id) ?? '\ufffd');
      if (!more.startsWith(stop.join(''))) continue;
      const rest = await encodedBy(engine, more.slice(stop.join('').length));
      if ([...ids.slice(0, kept), ...rest].join() === asked.join()) return kept;
    }
  }
  assert.deepEqual(asked, [...ids, ...(await encodedBy(engine, more))]);
  throw new Error('unreachable');
}

export function grown(line: Line, more: string, kept: number, asked: readonly number[], said: Generated): Line {
  const zeros = asked.slice(kept).map(() => 0);
  return {
    text: line.text + more + said.text,
    ids: [...asked, ...said.ids],
    mask: [...line.mask.slice(0, kept), ...zeros, ...said.ids.map(() => 1)],
    logprobs: [...line.logprobs.slice(0, kept), ...zeros, ...said.logprobs],
  };
}

interface GenerateAnswer {
  index?: number;
  text: string;
  output_ids: number[];
  meta_info: {
    output_token_logprobs?: [number, number, ...unknown[]][];
    finish_reason: { type: string } | null;
    prompt_tokens: number;
    completion_tokens: number;
    routed_experts?: string;
  };
}

/** Of `/generate`: a list of answers, one, or the events of one, be they with all so far or with what is new. */
export function generatedBy(body: string): Generated[] {
  if (!body.startsWith('data: ')) {
    const answers = [JSON.parse(body) as GenerateAnswer | GenerateAnswer[]].flat();
    return answers.map((answer) => generated([answer]));
  }
  const events = eventsOf(body)
    .filter((event) => event !== '[DONE]')
    .map((event) => JSON.parse(event) as GenerateAnswer);
  const last = events.at(-1)!;
  return [generated(last.output_ids.length === last.meta_info.completion_tokens ? [last] : events)];
}

function generated(parts: GenerateAnswer[]): Generated {
  const info = parts.at(-1)!.meta_info;
  const triples = parts.flatMap((part) => part.meta_info.output_token_logprobs ?? []);
  const ids = parts.flatMap((part) => part.output_ids);
  assert.equal(ids.length, info.completion_tokens);
  if (triples.length > 0) {
    assert.deepEqual(
      triples.map(([, id]) => id),
      ids,
    );
  }
  return {
    text: parts.map((part) => part.text).join(''),
    ids,
    logprobs: triples.length > 0 ? triples.map(([logprob]) => logprob) : ids.map(() => 0),
    finish: info.finish_reason?.type ?? '',
    promptTokens: info.prompt_tokens,
    experts: info.routed_experts,
  };
}

interface CompletionAnswer {
  choices: {
    index: number;
    text: string;
    token_ids?: number[];
    prompt_token_ids?: number[];
    logprobs?: { token_logprobs: number[] } | null;
    finish_reason: string | null;
  }[];
  sglext?: { routed_experts?: string };
}

/** Of `/v1/completions` with token ids: its choices, whole or from their events. */
export function completedBy(body: string): Generated[] {
  const events = body.startsWith('data: ') ? eventsOf(body).filter((event) => event !== '[DONE]') : [body];
  const answers = events.map((event) => JSON.parse(event) as CompletionAnswer);
  const choices = Map.groupBy(
    answers.flatMap((answer) => answer.choices),
    ({ index }) => index,
  );
  const experts = answers.find(({ sglext }) => sglext?.routed_experts !== undefined)?.sglext?.routed_experts;
  return Array.from(choices.values(), (parts) => ({
    text: parts.map(({ text }) => text).join(''),
    ids: parts.flatMap((part) => part.token_ids ?? []),
    logprobs: parts.flatMap((part) => part.logprobs?.token_logprobs ?? []),
    finish: parts.at(-1)!.finish_reason ?? '',
    promptTokens: parts.find((part) => part.prompt_token_ids)?.prompt_token_ids?.length ?? -1,
    experts,
  }));
}
