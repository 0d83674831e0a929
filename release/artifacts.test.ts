import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkSbom } from './artifacts.ts';

test('an SBOM of another version, without components or without hashes is refused', () => {
  const bom = (version: string, components: readonly object[]): string =>
    JSON.stringify({
      bomFormat: 'CycloneDX',
      metadata: { component: { purl: `pkg:npm/turnout@${version}` } },
      components,
    });
  const good = { purl: 'pkg:npm/zod@4.0.0', hashes: [{ alg: 'SHA-512', content: '00' }] };
  checkSbom(bom('1.2.0', [good]), '1.2.0');
  assert.throws(() => checkSbom(bom('1.1.0', [good]), '1.2.0'), /describes pkg:npm\/turnout@1\.1\.0/);
  assert.throws(() => checkSbom(bom('1.2.0', []), '1.2.0'), /0 components/);
  assert.throws(() => checkSbom(bom('1.2.0', [good, { purl: good.purl }]), '1.2.0'), /1 of them without a hash/);
});
