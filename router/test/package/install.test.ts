import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../../..');

/** The oldest Node.js that the package says it runs on. `npm run build` came first. */
const OLDEST_NODE = '22.19.0';

test(`the packed router, installed alone, serves on Node.js ${OLDEST_NODE}`, { timeout: 240_000 }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-package-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const packed = await run('npm', ['pack', '--workspace', 'router', '--pack-destination', folder, '--json'], {
    cwd: root,
  });
  const [{ filename }] = JSON.parse(packed.stdout.slice(packed.stdout.indexOf('['))) as [{ filename: string }];
  const node = `node-linux-${process.arch}@${OLDEST_NODE}`;
  const install = ['install', '--global', '--prefix', folder, '--no-audit', '--no-fund'];
  await run('npm', [...install, join(folder, filename), node], { cwd: folder });
  const home = join(folder, 'lib/node_modules');
  for (const file of ['README.md', 'LICENSE', 'dist/THIRD_PARTY_LICENSES'])
    assert.ok(existsSync(join(home, 'turnout', file)), file);

  const program = join(home, `node-linux-${process.arch}/bin/node`);
  const turnout = join(folder, 'bin/turnout');
  /** Starts a command, which ends with the test, and waits for what it writes. */
  async function start(args: readonly string[], until: RegExp) {
    const child = spawn(program, [turnout, ...args], { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'exit');
    t.after(async () => {
      child.kill('SIGTERM');
      await ended;
    });
    let output = '';
    const found = await new Promise<string>((resolve, reject) => {
      child.stdout.on('data', (part: Buffer) => {
        output += part.toString();
        const match = until.exec(output);
        if (match !== null) resolve(match[1]!);
      });
      void ended.then(() => reject(new Error(`it ended: ${output}`)));
    });
    return { child, ended, found };
  }
  const { found: engineUrl } = await start(['sim', '--workers', '1', '--first-port', '0'], /--worker-urls (\S+)\n/);
  const args = ['serve', '--port', '0', '--prometheus-port', '0', '--worker-urls', engineUrl];
  const { child: router, ended, found: url } = await start(args, /listening on (http:\/\/[\d.:]+)/);
  // A body of this size is scanned in a thread: its module has to be found in the package, too.
  const padding = ' '.repeat(2_000_000);
  const answer = await fetch(`${url}/generate`, {
    method: 'POST',
    body: JSON.stringify({ padding, text: 'Hello', sampling_params: { max_new_tokens: 2 } }),
  });
  assert.equal(answer.status, 200, await answer.clone().text());
  const page = await fetch(`${url}/dashboard`);
  assert.equal(page.status, 200);
  const [file] = /dashboard\/assets\/[\w-]+\.js/.exec(await page.text())!;
  assert.equal((await fetch(`${url}/${file}`)).status, 200, file);
  const { version } = JSON.parse(readFileSync(join(root, 'router/package.json'), 'utf8')) as { version: string };
  const told = await run(program, [turnout, '--version']);
  assert.ok(told.stdout.startsWith(`turnout ${version}\nNode.js ${OLDEST_NODE}`), told.stdout);
  router.kill('SIGTERM');
  assert.deepEqual(await ended, [0, null]);
});
