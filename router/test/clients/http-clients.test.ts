import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { everyCase, kinds, startResuming } from '../resume/every-answer.ts';
import { pythonOf, whyMissing } from './environments.ts';

const script = join(import.meta.dirname, 'http_clients.py');
const skip = await whyMissing('http');

for (const kind of kinds) {
  test(`with --resume on, ${kind}, httpx and aiohttp read every answer`, { skip }, async (t) => {
    const router = await startResuming(t, kind);
    const cases = join(temporaryFolder(t), 'cases.json');
    writeFileSync(cases, JSON.stringify(everyCase()));
    const { stdout } = await promisify(execFile)(pythonOf('http'), [script, router.url, cases]);
    assert.equal(stdout, 'over\n');
  });
}
