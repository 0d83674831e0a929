import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { post, startFleetScene } from '../harness/fleet.ts';

interface Line {
  readonly level: number;
  readonly msg: string;
}
const INFO = 30;
const DEBUG = 20;

/** A log whose lines are kept. */
function recorder(level: string) {
  const lines: Line[] = [];
  const log = pino({ level }, { write: (text: string) => void lines.push(JSON.parse(text) as Line) });
  return { log, ofPolicy: () => lines.filter(({ msg }) => msg.startsWith('consistent_hash: ')) };
}

for (const [keyOrder, level, number] of [
  ['vllm-router', 'info', INFO],
  ['turnout', 'debug', DEBUG],
] as const) {
  test(`--key-order ${keyOrder}: how a key is placed is said at ${level}, in vllm-router's words`, async (t) => {
    const { log, ofPolicy } = recorder(level);
    const { who, engines } = await startFleetScene(t, 4, { policy: 'consistent_hash', keyOrder }, { log });
    const at = await who(post('/generate', { text: 'x' }, ['X-Session-ID: sampling_33680dc2:1']));
    const { url } = engines[at]!;
    deepEqual(
      ofPolicy().map((line) => [line.level, line.msg]),
      [
        "Found session key in header 'x-session-id': sampling_33680dc2:1",
        'Extracted hash key: header:x-session-id:sampling_33680dc2:1',
        `Hash key 'header:x-session-id:sampling_33680dc2:1' mapped to worker: ${url}`,
        `Consistent hash routing: key='header:x-session-id:sampling_33680dc2:1' -> worker='${url}' (index=${at})`,
      ].map((words) => [number, `consistent_hash: ${words}`]),
    );
  });
}

test('a key of the body is extracted, not found in a header', async (t) => {
  const { log, ofPolicy } = recorder('info');
  const options = { policy: 'consistent-hashing', keyOrder: 'vllm-router' };
  const { who } = await startFleetScene(t, 2, options, { log });
  await who(post('/generate', { text: 'x', user: 'u1' }));
  equal(ofPolicy().length, 3);
  equal(ofPolicy()[0]!.msg, 'consistent_hash: Extracted hash key: body:user:u1');
});

test('at info the other order says nothing of single requests', async (t) => {
  const { log, ofPolicy } = recorder('info');
  const { who } = await startFleetScene(t, 2, { policy: 'consistent_hash' }, { log });
  await who(post('/generate', { text: 'x' }, ['x-session-id: s']));
  deepEqual(ofPolicy(), []);
});
