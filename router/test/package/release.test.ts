import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../../../release/artifacts.ts';
import { pythonVersion, versionOf } from '../../../release/version.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const root = join(import.meta.dirname, '../../..');

test('a fresh clone builds and checks a release, and publishes nothing', { timeout: 1_800_000 }, (t) => {
  const clone = join(temporaryFolder(t), 'clone');
  run(root, ['git', 'clone', '--quiet', root, clone]);
  run(clone, ['npm', 'ci', '--no-audit', '--no-fund']);
  const output = run(clone, ['npm', 'run', 'release']);
  assert.match(output, /Nothing was published/);
  assert.match(output, /npm publish .* --provenance/);
  const version = versionOf(clone);
  const out = join(clone, 'out/release');
  const sums = readFileSync(join(out, 'SHA256SUMS'), 'utf8').trim().split('\n');
  const names = sums.map((line) => {
    const [sum, name] = line.split('  ') as [string, string];
    assert.equal(
      createHash('sha256')
        .update(readFileSync(join(out, name)))
        .digest('hex'),
      sum,
      name,
    );
    return name;
  });
  assert.deepEqual(names.toSorted(), [
    `turnout-${pythonVersion(version)}-py3-none-any.whl`,
    `turnout-${version}.sbom.cdx.json`,
    `turnout-${version}.tgz`,
    `turnout_compat-${pythonVersion(version)}-py3-none-any.whl`,
  ]);
  // The build has changed no file of the checkout.
  assert.equal(run(clone, ['git', 'status', '--porcelain']), '');
});
