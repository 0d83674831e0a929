import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startSglang } from '../../router/test/real/engines.ts';
import { folderOf } from '../../router/test/real/installed.ts';
import { startRouter } from '../../router/test/real/router.ts';
import { python, runOf, say } from './programs.ts';

const GROUPS = 8;
/** With the trainer's numbers, and with the coarser ones that engines use on GPUs: then they choose other experts now and then. */
const DTYPES = ['float32', 'bfloat16'] as const;

/**
 * Sessions of a mixture-of-experts model on SGLang; the trainer replays the experts that the engine used. The model has random weights
 * with experts that differ much, so that another choice shows.
 */
export async function experts(out: string): Promise<void> {
  const model = folderOf('moe');
  rmSync(out, { recursive: true, force: true });
  for (const dtype of DTYPES) {
    say(`routed experts in ${dtype}: starting SGLang, half a minute`);
    const folder = join(out, dtype);
    mkdirSync(folder, { recursive: true });
    const engine = await startSglang({ folder: model, args: ['--enable-return-routed-experts', '--dtype', dtype] });
    const capture = ['--capture-chat', '--tokenizer-path', model, '--data-dir', join(folder, 'data')];
    const router = await startRouter([engine.url], [...capture, '--plugin', 'feed:{"groupSize":8,"needsReward":true}']);
    try {
      await Promise.all([
        runOf(python('rollouts.py', [router.url, String(GROUPS), '--experts']), () => undefined),
        runOf(python('experts.py', [router.url, model, String(GROUPS)]), (line) =>
          writeFileSync(join(out, `${dtype}.json`), line),
        ),
      ]);
    } finally {
      await router.stop();
      await engine.stop();
    }
  }
}
