import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { send } from './client.ts';
import type { EngineRequest } from './engine.ts';
import { chunk } from './message.ts';

/** Failed attempts and truncated responses by worker, as the metrics tell. */
export async function blamed(t: TestContext, router: Router): Promise<string[]> {
  const { text } = await send(t, router.url, 'GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n');
  return [
    ...text.matchAll(/^turnout_worker_(?:failed_attempts|cut_answers)_total\{worker="([^"]+)"\} ([1-9]\d*)$/gm),
  ].map(([, worker, count]) => `${worker} ${count}`);
}

/** An engine's way to begin a stream, in place of a good answer: the rest is the test's. */
export function beginsStream({ request }: { readonly request: EngineRequest }): 'nothing' {
  request.beginStream();
  request.connection.write(chunk('data: 1\n\n'));
  return 'nothing';
}
