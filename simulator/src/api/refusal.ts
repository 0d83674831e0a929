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

/** What SGLang says of an adapter that is not loaded. */
export const unknownAdapter = (name: string): Problem =>
  new Problem(`The following requested LoRA adapters are not loaded: ['${name}'].`);

/**
 * The data-parallel rank that a request names; this engine has one rank. vLLM reads the header and ignores one that is no number, SGLang reads
 * the header on OpenAI's paths and the body on its own.
 */
export function rankProblem(call: HttpCall): Problem | null {
  const { core, body } = call;
  const header = call.header('x-data-parallel-rank');
  if (core.options.kind === 'vllm') {
    if (header === undefined || !/^\s*[+-]?\d+\s*$/.test(header) || Number(header) === 0) return null;
    return new Problem(`data_parallel_rank ${Number(header)} is out of range [0, 1).`);
  }
  if (header !== undefined && !isOwnPath(call)) {
    if (!/^\s*[+-]?\d+\s*$/.test(header)) return new Problem(`Invalid X-Data-Parallel-Rank header: ${header}`);
    return Number(header) === 0 ? null : new Problem(`routed_dp_rank=${Number(header)} out of range [0, 1)`);
  }
  const rank = body.routed_dp_rank ?? body.data_parallel_rank ?? 0;
  return rank === 0 ? null : new Problem(`routed_dp_rank=${JSON.stringify(rank)} out of range [0, 1)`);
}

const isOwnPath = ({ request }: HttpCall): boolean => request.url?.startsWith('/generate') === true;
