import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { dashboard, dashboardFile } from '../../../deploy/grafana/generate.ts';
import { filled, guidePath, guides, pages } from '../../../docs/generate.ts';
import { sources } from '../../../python/generate.ts';
import { alertRules, alertsFile } from '../../../deploy/prometheus/generate.ts';
import { chartFiles } from '../../../deploy/helm/generate.ts';

for (const [file, page] of Object.entries(pages)) {
  test(`docs/reference/${file} says what the code says`, () => {
    const written = readFileSync(join(import.meta.dirname, '../../../docs/reference', file), 'utf8');
    assert.equal(written, page(), 'run: npm run docs');
  });
}

for (const file of Object.keys(guides)) {
  test(`docs/guides/${file} says what the code says`, () => {
    const written = readFileSync(guidePath(file), 'utf8');
    assert.equal(written, filled(file, written), 'run: npm run docs');
  });
}

for (const [path, source] of Object.entries({ ...sources, ...chartFiles })) {
  test(`${path} says what the code says`, () => {
    const written = readFileSync(join(import.meta.dirname, '../../..', path), 'utf8');
    assert.equal(written, source(), 'run: npm run docs');
  });
}

test('deploy/grafana/turnout.json says what the code says', () => {
  assert.equal(readFileSync(dashboardFile, 'utf8'), dashboard(), 'run: npm run docs');
});

test('deploy/prometheus/turnout-alerts.yaml says what the code says', () => {
  assert.equal(readFileSync(alertsFile, 'utf8'), alertRules(), 'run: npm run docs');
});
