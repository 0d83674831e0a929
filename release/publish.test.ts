import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandsOf, targets } from './publish.ts';

const artifacts = {
  version: '1.2.0',
  tarball: 'turnout-1.2.0.tgz',
  wheels: ['a.whl', 'b.whl'],
  python: 'python',
  image: 'registry/turnout',
};

test('everything is published with its provenance, the image with an SBOM too', () => {
  const [npm, pypi, image] = targets.map((target) => commandsOf(target, artifacts).map((words) => words.join(' ')));
  assert.match(npm![0]!, /^npm publish turnout-1\.2\.0\.tgz --provenance .*--tag=latest$/);
  assert.match(
    pypi!.join('\n'),
    /sign a\.whl b\.whl\n.*upload .*--attestations a\.whl b\.whl a\.whl\.publish\.attestation/,
  );
  assert.match(
    image![0]!,
    /--sbom=true --provenance=mode=max .*--tag=registry\/turnout:1\.2\.0 --tag=registry\/turnout:latest/,
  );
});

test('a candidate does not become what is installed without a version', () => {
  const [npm, , image] = targets.map((target) =>
    commandsOf(target, { ...artifacts, version: '1.2.0-rc.1' })[0]!.join(' '),
  );
  assert.match(npm!, /--tag=next$/);
  assert.ok(image!.includes('turnout:1.2.0-rc.1') && !image!.includes(':latest'));
});
