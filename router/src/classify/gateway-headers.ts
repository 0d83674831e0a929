import type { RequestHead } from '../wire/request-head.ts';

/** Names of headers of the Gateway API Inference Extension, each with the name that llm-d's picker has for it since 2026. */
export const gatewayHeaders = {
  objective: ['x-gateway-inference-objective', 'x-llm-d-inference-objective'],
  fairnessId: ['x-gateway-inference-fairness-id', 'x-llm-d-inference-fairness-id'],
  modelRewrite: ['x-gateway-model-name-rewrite', 'x-llm-d-model-name-rewrite'],
} as const;

/** The value of the first of these headers that is there; '': none is. */
export function gatewayHeader(head: Pick<RequestHead, 'get'>, names: readonly string[]): string {
  for (const name of names) {
    const value = head.get(name) ?? '';
    if (value !== '') return value;
  }
  return '';
}
