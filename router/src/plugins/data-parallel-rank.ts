import { generate } from '../engines/dialects/generate.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { BodyThread } from '../forward/body-calls.ts';
import type { Plugins } from '../phases/chain.ts';
import type { Plugin } from '../plugin.ts';

/**
 * Names the rank in the body of SGLang's /generate, which ignores the header that its OpenAI endpoints and vLLM read (SGLang
 * 0.5.23). A body that names a rank itself stays as it is.
 */
const dataParallelRank = (thread: BodyThread): Plugin => ({
  name: 'data-parallel-rank',
  appliesTo: ({ path, head }) => path === generate.path && head.get('x-data-parallel-rank') === undefined,
  requestBody(_, body, { engine, rank }) {
    if (engine !== 'sglang' || rank === null) return body;
    // It is the first plugin, so no other has this buffer.
    return thread.run('withRank', body, rank);
  },
});

/** Adds the plugin, before all others, when the first worker that is a rank joins. */
export function addDataParallelRank(fleet: Fleet, plugins: Plugins, thread: BodyThread): void {
  const end = fleet.onEvent((event, { rank }) => {
    if (event !== 'added' || rank === null) return;
    plugins.addFirst(dataParallelRank(thread));
    end();
  });
}
