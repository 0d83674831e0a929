import assert from 'node:assert/strict';
import { eventsOf, type Answer } from './call.ts';

/** One choice of an answer. */
interface Said {
  /** Empty where the request did not ask for them. */
  tokens: number[];
  text: string;
  /** Null when the answer ended before it did. */
  finish: string | null;
}

interface Choice {
  index?: number;
  text?: string;
  message?: { content: string | null };
  delta?: { content?: string | null };
  token_ids?: number[] | null;
  response_token_ids?: number[];
  output_ids?: number[];
  finish_reason?: string | null;
  meta_info?: { finish_reason: { type: string } | null };
}

/** What an answer says, in whichever dialect and however cut into events: what two runs of an engine agree on. */
export function saidBy(answer: Answer): Said[] {
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream') ?? false;
  const parts = isStream ? eventsOf(answer.body).filter((event) => event !== '[DONE]') : [answer.body];
  const said = new Map<number, Said>();
  for (const part of parts) {
    const value = JSON.parse(part) as { choices?: Choice[] } | Choice | Choice[];
    const choices = Array.isArray(value) ? value : 'choices' in value ? (value.choices ?? []) : [value as Choice];
    choices.forEach((choice, place) => hear(said, choice, choice.index ?? place));
  }
  return [...said].sort(([a], [b]) => a - b).map(([, one]) => one);
}

function hear(said: Map<number, Said>, choice: Choice, index: number): void {
  const one = said.get(index) ?? { tokens: [], text: '', finish: null };
  said.set(index, one);
  if (choice.meta_info !== undefined) {
    // SGLang's own events carry everything so far, not what is new.
    one.tokens = choice.output_ids ?? [];
    one.text = choice.text ?? '';
    one.finish = choice.meta_info.finish_reason?.type ?? null;
    return;
  }
  one.tokens.push(...(choice.token_ids ?? choice.response_token_ids ?? []));
  one.text += choice.text ?? choice.message?.content ?? choice.delta?.content ?? '';
  one.finish = choice.finish_reason ?? one.finish;
}

/** All lists of log probabilities of an answer by their place in it, however a stream was cut into events. */
export function probabilitiesOf(answer: Answer): unknown {
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream') ?? false;
  const parts = isStream ? eventsOf(answer.body).filter((event) => event !== '[DONE]') : [answer.body];
  const found: Record<string, unknown> = {};
  const seek = (value: unknown, at: string): void => {
    if (!isObject(value)) return;
    for (const [name, item] of Object.entries(value)) {
      const place = `${at}.${name}`;
      if (!name.endsWith('logprobs')) seek(item, place);
      // SGLang's own events carry everything so far, not what is new.
      else found[place] = place.includes('meta_info') ? item : joined(found[place], item);
    }
  };
  for (const part of parts) seek(JSON.parse(part), '');
  return found;
}

/** The lists in the one followed by those in the other. */
function joined(first: unknown, second: unknown): unknown {
  if (first === undefined || first === null) return second;
  if (second === null) return first;
  if (Array.isArray(first) && Array.isArray(second)) return [...(first as unknown[]), ...(second as unknown[])];
  if (!isObject(first) || !isObject(second)) throw new Error(`${JSON.stringify(second)} does not go on with a list`);
  return Object.fromEntries(Object.entries(first).map(([name, value]) => [name, joined(value, second[name])]));
}

const differsByRun = /^(id|request_id|created|.*_(ts|time|wait|latency|throughput))$/;

/** Holds two whole JSON answers against each other: the same names in the same places, and the same values but for ids,
 * times, and the last digits of a logprob, which move with what else is in the engine's batch. */
export function assertAlike(actual: unknown, expected: unknown, at = 'the answer'): void {
  if (typeof actual === 'number' && typeof expected === 'number' && !Number.isInteger(expected)) {
    assert.ok(Math.abs(actual - expected) < 1e-3, `${at}: ${actual}, not ${expected}`);
  } else if (isObject(actual) && isObject(expected)) {
    assert.deepEqual(Object.keys(actual), Object.keys(expected), at);
    for (const [name, value] of Object.entries(expected))
      if (!differsByRun.test(name)) assertAlike(actual[name], value, `${at}.${name}`);
  } else {
    assert.deepEqual(actual, expected, at);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
