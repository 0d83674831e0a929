import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments, stringify } from 'yaml';
import { loadConfig } from '../../src/config/load.ts';
import { kebab, options } from '../../src/config/options.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { type Block, blocksOf, guidePages } from './pages.ts';

/** Why a block is not run by `npm test -- suite:docs`, as words of the page. */
const reasons = {
  'needs-gpu': 'starts real engines or a training',
  'needs-framework': 'a part of the program of a framework',
  'needs-trainer': 'needs a Tinker server that trains',
  'needs-cluster': 'needs a Kubernetes cluster',
  'needs-root': 'changes the system',
  'needs-package': 'installs or builds a package',
  'needs-files': 'needs files that the reader has',
  'takes-minutes': 'has a test of its own',
  'in-test-clients': 'is run by npm test -- suite:clients',
  'in-test-envoy': 'is run by npm test -- suite:envoy',
  'in-test-python': 'is run by npm test -- suite:python',
  'other-program': 'configures another program',
  fragment: 'a part of a program',
};

const blocks = guidePages.flatMap(blocksOf);
const at = ({ page, line }: Block): string => `${page}:${line}`;
const optionNames = new Set(Object.keys(options).map(kebab));

const checks: Readonly<Record<string, (block: Block, folder: string) => void>> = {
  sh: (block) => {
    const { status, stderr } = spawnSync('bash', ['-n'], { input: block.code, encoding: 'utf8' });
    assert.deepEqual([status, stderr], [0, ''], at(block));
  },
  console: (block) => assert.match(block.code, /^\$ /, at(block)),
  python: () => {},
  toml: () => {},
  ts: ({ code }) => void stripTypeScriptTypes(code),
  json: ({ code }) => void JSON.parse(code),
  yaml: checkYaml,
  text: () => {},
  '': () => {},
};

/** A configuration of the router, values of the Helm chart, or manifests of Kubernetes. */
function checkYaml(block: Block, folder: string): void {
  for (const document of parseAllDocuments(block.code)) {
    assert.deepEqual(document.errors, [], at(block));
    const content = document.toJS() as Record<string, unknown>;
    if ('kind' in content || block.notRun !== null) continue;
    const config = content['options'] ?? content;
    const unknown = Object.keys(config).filter((name) => !optionNames.has(name));
    assert.deepEqual(unknown, [], at(block));
    const file = join(folder, 'block.yaml');
    writeFileSync(file, stringify(config));
    loadConfig({}, {}, file);
  }
}

test('every block of the guides is in a language that is checked, and is run unless it says why not', (t) => {
  const folder = temporaryFolder(t);
  const counts: Record<string, number> = {};
  for (const block of blocks) {
    const { language, notRun } = block;
    const check = checks[language];
    assert.ok(check !== undefined, `${at(block)}: unknown language ${language}: ${Object.keys(checks).join(', ')}`);
    check(block, folder);
    if (notRun !== null)
      assert.ok(notRun in reasons, `${at(block)}: not-run:${notRun} is none of ${Object.keys(reasons).join(', ')}`);
    const kind = notRun === null ? language || 'text' : `not run: ${reasons[notRun as keyof typeof reasons]}`;
    counts[kind] = (counts[kind] ?? 0) + 1;
  }
  for (const kind of Object.keys(counts).toSorted()) t.diagnostic(`${counts[kind]} ${kind}`);
  assert.ok(blocks.length > 100);
});

const hasPython = spawnSync('python3', ['--version']).status === 0;
test('the Python and TOML of the guides parses', { skip: !hasPython && 'needs python3' }, () => {
  const given = blocks.filter(({ language }) => language === 'python' || language === 'toml');
  const program = `
import ast, json, sys, tomllib
for block in json.load(sys.stdin):
    try: (tomllib.loads if block["language"] == "toml" else ast.parse)(block["code"])
    except Exception as error: sys.exit(f"{block['page']}:{block['line']}: {error}")`;
  const { status, stderr } = spawnSync('python3', ['-c', program], { input: JSON.stringify(given), encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
