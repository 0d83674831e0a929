import type { Router } from '../../src/router.ts';
import { RequestBody, RetryBudget } from '../../src/wire/request-body.ts';
import { RequestHead } from '../../src/wire/request-head.ts';
import type { Sink } from '../../src/wire/sink.ts';
import type { Exchange } from '../../src/exchange.ts';
import { wire } from './message.ts';

/** Sends a request down the road without a client's socket. */
export function dispatch(router: Router, bytes: string, sink: Sink): Exchange {
  const all = wire(bytes);
  const head = new RequestHead();
  const bodyStart = head.read(all, 0, all.length);
  if (bodyStart < 0) throw new Error(`not a request head: ${head.refusal?.message}`);
  const body = new RequestBody(new RetryBudget(1_000_000), () => {});
  if (bodyStart < all.length) body.push(all.subarray(bodyStart));
  body.finish();
  return router.pipeline.dispatch(head, body, sink);
}
