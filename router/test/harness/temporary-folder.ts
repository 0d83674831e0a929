import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

/** A folder that is gone after the test. */
export function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-'));
  // What is started later is closed later, and may write a file while the folder is being removed: it is removed again.
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 }));
  return folder;
}
