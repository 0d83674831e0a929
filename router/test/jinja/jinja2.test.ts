import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { type TestContext, before, test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { readJson } from '../../src/recorder/thread/jinja/json.ts';
import { Template } from '../../src/recorder/thread/jinja/template.ts';
import type { Named } from '../../src/recorder/thread/jinja/values.ts';
import { pythonOf, whyMissing } from '../clients/environments.ts';
import { chats } from './chats.ts';
import { NAMES, expression, template } from './expressions.ts';

/** `npm test -- suite:jinja`: the router's chat templates against Jinja2 itself. JINJA_SEED repeats a run, JINJA_CASES makes it longer. */

const python = pythonOf('jinja');
const seed = Number(process.env['JINJA_SEED'] ?? 1);
const count = Number(process.env['JINJA_CASES'] ?? 2_000);

before(async () => {
  const why = await whyMissing('jinja', (line) => process.stderr.write(`${line}\n`));
  if (why !== false) throw new Error(why);
});

type Answer = { readonly text: string } | { readonly error: string };

interface Case {
  readonly template: string;
  /** JSON */
  readonly names: string;
}

/** What Jinja2 makes of them. */
async function* answersOf(cases: readonly Case[]): AsyncGenerator<Answer> {
  const child = spawn(python, [join(import.meta.dirname, 'render.py')], { stdio: ['pipe', 'pipe', 'inherit'] });
  const closed = once(child, 'close');
  Readable.from(cases.map((each) => `${JSON.stringify(each)}\n`)).pipe(child.stdin);
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line) as Answer;
  assert.deepEqual(await closed, [0, null]);
}

let compiled: { readonly source: string; readonly template: Template } | null = null;

function ourAnswer({ template: source, names }: Case): Answer {
  try {
    if (compiled?.source !== source) compiled = { source, template: new Template(source) };
    return { text: compiled.template.render(readJson(names) as Named) };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

/** Texts are equal; an error is one on both sides, in words of its own. @param least the share of cases that have to be rendered */
async function compare(t: TestContext, cases: readonly Case[], least: number): Promise<void> {
  let compared = 0;
  let rendered = 0;
  for await (const their of answersOf(cases)) {
    const each = cases[compared++]!;
    const own = ourAnswer(each);
    const message = `${each.template}\n${each.names}\n`;
    if ('error' in their) assert.ok('error' in own, `${message}Jinja2 refuses it: ${their.error}`);
    else {
      assert.deepEqual(own, their, message);
      rendered++;
    }
  }
  assert.equal(compared, cases.length);
  t.diagnostic(`${rendered} of ${cases.length} are rendered, the others refused`);
  assert.ok(rendered > least * cases.length, 'more cases have to be rendered');
}

test('random expressions', async (t) => {
  const random = seededRandom(seed);
  const cases = Array.from({ length: count }, () => ({ template: `{{ ${expression(random)} }}`, names: NAMES }));
  await compare(t, cases, 0.4);
});

test('random templates', async (t) => {
  const random = seededRandom(seed);
  await compare(
    t,
    Array.from({ length: count }, () => ({ template: template(random), names: NAMES })),
    0.5,
  );
});

test('the chat templates of many models, with chats that are hard to render', async (t) => {
  const [installed] = globSync(join(dirname(dirname(python)), 'lib/python*/site-packages/trl/chat_templates'));
  const files = globSync(join(installed!, '*.jinja')).toSorted();
  assert.ok(files.length > 50, `${files.length} templates`);
  const cases = files.flatMap((file) => {
    const source = readFileSync(file, 'utf8');
    return chats().map((names) => ({ template: source, names }));
  });
  await compare(t, cases, 0.8);
});
