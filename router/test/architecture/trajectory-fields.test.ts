import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { toJsonl } from '../../src/recorder/thread/export/jsonl.ts';
import { noProgress, walk } from '../../src/recorder/thread/export/walk.ts';
import { turnJson } from '../../src/recorder/thread/export/turn-json.ts';
import { MemoryStore } from '../../src/recorder/thread/store/memory.ts';
import { TokenPieces } from '../../src/recorder/thread/tokens/pieces.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';
import { turnOf } from '../harness/turns.ts';

const PAGE = join(import.meta.dirname, '../../../docs/reference/trajectory-fields.md');

/** Fields that a section of the page has a row for. */
function listed(section: string): Set<string> {
  const text = readFileSync(PAGE, 'utf8').split(`## ${section}\n`)[1]!.split('\n## ')[0]!;
  const cells = text.split('\n').flatMap((line) => (line.startsWith('| `') ? line.split(' | ')[0]! : []));
  return new Set(cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name!)));
}

/** A turn with everything that a turn may have. */
const full: Turn = turnOf({
  versions: [{ version: null, from: 2, to: 4, before: '7', after: '8' }],
  request: Buffer.from('{}'),
  answer: Buffer.from('{}'),
  unreadable: ['request'],
});

async function exported(): Promise<{ turns: Record<string, unknown>[]; versions: object[] }> {
  const store = new MemoryStore(1e9);
  store.put([full]);
  let text = '';
  for await (const piece of toJsonl(walk(store, {}, noProgress(), true))) text += Buffer.from(piece).toString();
  return JSON.parse(text) as Awaited<ReturnType<typeof exported>>;
}

test('docs/reference/trajectory-fields.md has a row for each field of an export', async () => {
  const { turns, ...line } = await exported();
  const missing = (section: string, value: object): string[] => {
    const known = listed(section);
    return Object.keys(value).filter((name) => !known.has(name));
  };
  assert.deepEqual(missing('Trajectory', { ...line, turns }), []);
  assert.deepEqual(missing('Span of `versions`', line.versions[0]!), []);
  assert.deepEqual(missing('Turn', turns[0]!), []);
  const own = new Set(['loss_mask', 'rollout_log_probs', 'rollout_top_logprobs']);
  assert.deepEqual(
    missing('Turn', turnJson(full, new TokenPieces({ model: { vocab: {} } }))).filter((name) => !own.has(name)),
    [],
    'what a turn has beside those is described with the trajectory',
  );
});
