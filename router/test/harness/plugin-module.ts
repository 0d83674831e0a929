import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { TestContext } from 'node:test';

/** Files in a folder of their own. @returns the folder */
export function folderOf(t: TestContext, files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-plugin-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

/** A plugin's module with this default export. @returns its path */
export const moduleOf = (t: TestContext, exported: string, name = 'mine.ts'): string =>
  join(folderOf(t, { [name]: `export default ${exported};\n` }), name);
