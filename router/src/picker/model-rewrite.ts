import { headerKeyText } from '../classify/routing-keys.ts';
import type { BodyThread } from '../forward/body-calls.ts';
import type { Plugin } from '../plugin.ts';
import type { RequestHead } from '../wire/request-head.ts';

/** Of the Gateway API Inference Extension; the second name is that of llm-d's picker since 2026. */
const MODEL_NAME_REWRITE = ['x-gateway-model-name-rewrite', 'x-llm-d-model-name-rewrite'] as const;

/** The model that the engine is asked for in place of the one in the body; '': the gateway names none. */
export function rewrittenModel(head: Pick<RequestHead, 'get'>): string {
  for (const header of MODEL_NAME_REWRITE) {
    const model = head.get(header) ?? '';
    if (model !== '') return headerKeyText(model);
  }
  return '';
}

/** Puts the model that the gateway names in a header (canaries, adapters by share of the traffic) into the body. */
export const modelRewrite = (thread: BodyThread): Plugin => ({
  name: 'model-rewrite',
  appliesTo: ({ isGeneration, head }) => isGeneration && rewrittenModel(head) !== '',
  classify(x) {
    x.model = rewrittenModel(x.head);
  },
  requestBody: (x, body) => thread.run('withModel', body, x.model),
});
