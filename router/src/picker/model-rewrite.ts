import { gatewayHeader, gatewayHeaders } from '../classify/gateway-headers.ts';
import { utf8Header } from '../classify/routing-keys.ts';
import type { BodyThread } from '../forward/body-calls.ts';
import type { Plugin } from '../plugin.ts';
import type { RequestHead } from '../wire/request-head.ts';

/** The model that the engine is asked for in place of the one in the body; '': the gateway names none. */
export const rewrittenModel = (head: Pick<RequestHead, 'get'>): string =>
  utf8Header(gatewayHeader(head, gatewayHeaders.modelRewrite));

/** Puts the model that the gateway names in a header (canaries, adapters by share of the traffic) into the body. */
export const modelRewrite = (thread: BodyThread): Plugin => ({
  name: 'model-rewrite',
  appliesTo: ({ isGeneration, head }) => isGeneration && rewrittenModel(head) !== '',
  classify(x) {
    x.model = rewrittenModel(x.head);
  },
  requestBody: (x, body) => thread.run('withModel', body, x.model),
});
