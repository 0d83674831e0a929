import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

/** A module of the user's own that exports `factory`. @returns its path */
export function policyModule(t: TestContext, factory: string, name = 'my-policy.ts'): string {
  const directory = mkdtempSync(join(tmpdir(), 'turnout-policy-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const path = join(directory, name);
  writeFileSync(path, `export default ${factory};\n`);
  return path;
}
