/** How the engines refuse a request: vLLM 0.32 wraps its message, SGLang 0.5.23 does not and names no parameter. */

import type { Core } from '../model/core.ts';
import type { HttpCall } from './http-call.ts';
import { type Fields, Problem, SchemaProblem } from './read-request.ts';

const errorTypes: Record<number, string> = { 400: 'BadRequestError', 404: 'NotFoundError', 500: 'InternalServerError' };

export function refuse(call: HttpCall, code: number, problem: Problem): void {
  const { message, param } = problem;
  const type = problem instanceof SchemaProblem ? 'Bad Request' : errorTypes[code]!;
  if (call.core.options.kind === 'vllm') call.json(code, { error: { message, type, param, code } });
  else call.json(code, { object: 'error', message, type, param: null, code });
}

/** What vLLM says of a model that is neither its own nor an adapter. */
export function unknownModel({ modelNames, options }: Core, { model }: Fields): Problem | null {
  if (typeof model !== 'string' || modelNames.has(model)) return null;
  return new Problem(`The model \`${model}\` does not exist. Valid aliases: ${options.model}.`, 'model');
}
