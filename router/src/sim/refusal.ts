/** How the engines refuse a request: vLLM 0.32 wraps what it says, SGLang 0.5.23 does not and names no parameter. */

import type { HttpCall } from './http-call.ts';
import { type Problem, SchemaProblem } from './read-request.ts';

const errorTypes: Record<number, string> = { 400: 'BadRequestError', 404: 'NotFoundError', 500: 'InternalServerError' };

export function refuse(call: HttpCall, code: number, problem: Problem): void {
  const { message, param } = problem;
  const type = problem instanceof SchemaProblem ? 'Bad Request' : errorTypes[code]!;
  if (call.core.options.kind === 'vllm') call.json(code, { error: { message, type, param, code } });
  else call.json(code, { object: 'error', message, type, param: null, code });
}
