import { deepEqual, equal, match } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { within } from '../harness/within.ts';

interface Left {
  readonly error: string;
  readonly intervals: number;
  readonly exitListeners: number;
  readonly files: readonly string[];
}

/** Starts a router with all that it can have open, in a process of its own, which must end by itself. */
async function leftBy(t: TestContext, options: object): Promise<Left> {
  const engine = await startEngine(t, { control: () => answer(200, '{}') });
  const folder = temporaryFolder(t);
  writeTokenizer(join(folder, 'tokenizer'));
  const everything = {
    port: 0,
    prometheusPort: 0,
    workerUrls: [engine.url],
    engineLoadIntervalSecs: 0.05,
    policy: 'sticky_least_loaded',
    dataDir: join(folder, 'data'),
    logDir: join(folder, 'log'),
    tokenizerPath: join(folder, 'tokenizer'),
    plugin: ['radix-tree'],
  };
  const program = join(import.meta.dirname, 'leftovers.ts');
  const env = { PATH: process.env['PATH'], HOME: folder, NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] };
  const words = [program, JSON.stringify({ ...everything, ...options }), folder];
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'], env });
  t.after(() => child.kill('SIGKILL'));
  let text = '';
  child.stdout.on('data', (bytes) => (text += String(bytes)));
  await within(once(child, 'close'), 'it ends by itself');
  return JSON.parse(text.trimEnd().split('\n').at(-1)!) as Left;
}

const NOTHING = { intervals: 0, exitListeners: 0, files: [] };

test('a router that is closed leaves nothing open', async (t) => {
  deepEqual(await leftBy(t, {}), { error: '', ...NOTHING });
});

test('a start that fails leaves nothing open, wherever it fails', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  t.after(() => taken.close());
  const { port } = taken.address() as { port: number };
  const file = join(temporaryFolder(t), 'file');
  writeFileSync(file, 'no certificate');
  for (const [options, words] of [
    [{ prometheusPort: port }, /--prometheus-port .*another process listens there/],
    [{ port, adminPort: 0 }, /--port .*another process listens there/],
    [{ serviceDiscovery: true, selector: ['a=b'] }, /--service-discovery: .*kube\/config/],
    [{ tlsCertPath: file, tlsKeyPath: file }, /TLS: these files don't make a certificate/],
    [{ modelPolicy: ['m=/nowhere/policy.ts'] }, /\/nowhere\/policy\.ts/],
    [{ plugin: ['radix-tree', '/nowhere/plugin.ts'] }, /\/nowhere\/plugin\.ts/],
    [{ dataDir: file }, /--data-dir .* is a file, not a folder/],
    [{ apiKeyFile: '/nowhere/keys' }, /--api-key-file/],
  ] as const) {
    const { error, ...left } = await leftBy(t, options);
    match(error, words);
    deepEqual(left, NOTHING, error);
  }
  equal(taken.listening, true);
});
