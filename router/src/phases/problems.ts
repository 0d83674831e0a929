import type { Worker } from '../fleet/worker.ts';
import type { ResponseObserver } from '../exchange.ts';
import type { PluginAnswer, PluginRefusal } from '../plugin.ts';

/** What is wrong with values that phases returned: '' for nothing. */

export const problemOfBytes = (answer: unknown): string =>
  Buffer.isBuffer(answer) ? '' : 'has to answer with a Buffer';

export function problemOfRefusal(answer: PluginRefusal | null | undefined): string {
  if (answer === null || answer === undefined) return '';
  const { status, message } = answer;
  const isRefusal = Number.isInteger(status) && status >= 400 && status < 600 && typeof message === 'string';
  return isRefusal ? '' : 'has to answer with null, or with { status: 400 to 599, message }';
}

export function problemOfAnswer(answer: PluginAnswer | null | undefined): string {
  if (answer === null || answer === undefined) return '';
  const { status, contentType, body } = answer;
  const isAnswer = Number.isInteger(status) && status >= 200 && status < 600;
  return isAnswer && typeof contentType === 'string' && Buffer.isBuffer(body)
    ? ''
    : 'has to answer with null, or with { status: 200 to 599, contentType, body: a Buffer }';
}

export function problemOfChoice(answer: readonly Worker[], _x: unknown, workers: readonly Worker[]): string {
  const isChoice = Array.isArray(answer) && answer.every((worker) => workers.includes(worker as Worker));
  return isChoice ? '' : 'has to answer with some of the workers that it was given';
}

export function problemOfListener(answer: ResponseObserver | null | undefined): string {
  return answer === null || answer === undefined || typeof answer.observe === 'function'
    ? ''
    : 'must return null or { observe(bytes, start, end) }';
}
