import { ok } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { filesUsedBy } from '../harness/files-of-a-chat.ts';
import { startScene, untilIdle } from '../harness/router.ts';

test('a plain chat of a session passes few files', async (t) => {
  const { router, exchange } = await startScene(t, { policy: 'rollout' });
  const chat = request('POST', '/v1/chat/completions', '{"model":"m","messages":[{"role":"user","content":"Hi"}]}', [
    'content-type: application/json',
    'x-session-id: s1',
  ]);
  const run = async (): Promise<void> => {
    await exchange(chat, 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}');
    await untilIdle(router);
  };
  for (let i = 0; i < 3; i++) await run();
  const files = await filesUsedBy(run);
  t.diagnostic(`${files.length} files: ${files.join(' ')}`);
  ok(files.length > 30 && files.length <= 72, `${files.length} files: ${files.join(' ')}`);
});
