import { deepEqual, ok } from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { filesUsedBy } from '../harness/files-of-a-chat.ts';
import { startScene, untilIdle } from '../harness/router.ts';

test('a plain chat of a session passes few files', async (t) => {
  // On a busy machine an interval timer can fire during every chat; its file would then count as one of the chat's.
  t.mock.timers.enable({ apis: ['setInterval'] });
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
  ok(files.length > 30 && files.length <= 51, `${files.length} files: ${files.join(' ')}`);
  deepEqual(filesOfTheGuide(), files, 'docs/life-of-a-request.md lists the files of a chat');
});

/** The files in the numbered steps of the page. */
function filesOfTheGuide(): string[] {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/life-of-a-request.md'), 'utf8');
  const [, section = ''] = page.split('## By file');
  const steps = section.slice(section.indexOf('\n1. '), section.indexOf('A control request'));
  return [...new Set([...steps.matchAll(/`([\w/-]+\.ts)`/g)].map(([, file]) => file!))].toSorted();
}
