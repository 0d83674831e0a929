import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { pythonOf, whyMissing } from '../../clients/environments.ts';
import { type Block, blocksOf, guidePages, root } from '../pages.ts';
import { Sandbox } from './sandbox.ts';

/** Runs the blocks of the documentation: `npm test -- suite:docs`; `TURNOUT_DOCS_PAGE` has a part of a page's name. */

const noPython = await whyMissing('docs', (line) => process.stderr.write(`suite:docs: ${line}\n`));
const wanted = process.env['TURNOUT_DOCS_PAGE'] ?? '';

/** `console`: lines that begin with `$ ` are run, and the others are in their output, except those with `…`. */
async function runConsole(sandbox: Sandbox, { code }: Block): Promise<void> {
  const lines = code.replaceAll('\\\n', '\\\u0000').split('\n');
  const commands = lines.filter((line) => line.startsWith('$ '));
  const script = commands.map((line) => `${line.slice(2).replaceAll('\u0000', '\n')} || true`).join('\n');
  const output = (await sandbox.shell(script)).split(/\r?\n/);
  const shown = lines.filter((line) => line !== '' && !line.startsWith('$ ') && !line.includes('…'));
  assert.deepEqual(
    shown.map((line) => sandbox.rewritten(line)).filter((line) => !output.includes(line)),
    [],
    output.join('\n'),
  );
}

async function run(sandbox: Sandbox, block: Block): Promise<void> {
  // A block that begins with the name of a file is that file.
  const [, name] = /^(?:#|\/\/) ([\w-]+\.(?:yaml|ts))$/m.exec(block.code.split('\n', 1)[0]!) ?? [];
  if (name !== undefined) sandbox.write(name, block.code);
  if (block.language === 'sh') await sandbox.shell(block.code);
  else if (block.language === 'console') await runConsole(sandbox, block);
  else if (block.language === 'python') await sandbox.python(block.code);
}

for (const page of guidePages.filter((each) => each.includes(wanted))) {
  const blocks = blocksOf(page).filter(({ notRun }) => notRun === null);
  const isRun = blocks.some(({ language }) => ['sh', 'console', 'python'].includes(language));
  if (!isRun) continue;
  const needsPython = blocks.some(({ language }) => language === 'python');
  test(`the blocks of ${page} run`, { skip: needsPython && noPython }, async (t) => {
    const sandbox = await Sandbox.open(t, dirname(pythonOf('docs')));
    const first = blocks.find(({ language }) => language === 'sh');
    if (first === undefined || !/\bturnout (?:-- )?sim\b/.test(first.code)) await sandbox.startFleet();
    for (const block of blocks) {
      await run(sandbox, block).catch((error: unknown) => {
        throw new Error(`${page}:${block.line}: ${(error as Error).message}`, { cause: error });
      });
    }
  });
}

test('the TypeScript of the guides has the right types', async (t) => {
  const folder = join(root, 'out/docs-blocks');
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(folder, { recursive: true });
  const blocks = guidePages.flatMap(blocksOf).filter(({ language, notRun }) => language === 'ts' && notRun === null);
  for (const { page, line, code } of blocks)
    writeFileSync(join(folder, `${page.replaceAll('/', '-')}-${line}.ts`), code);
  const config = {
    extends: '../../tsconfig.json',
    compilerOptions: { paths: { turnout: [join(root, 'router/src/index.ts')] } },
    include: ['*.ts'],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  assert.ok(blocks.length > 3);
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  await promisify(execFile)(process.execPath, [tsc, '--noEmit', '-p', folder]).catch((error: unknown) => {
    throw new Error((error as { stdout: string }).stdout, { cause: error });
  });
});
