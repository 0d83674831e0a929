import type { Fleet } from '../fleet/fleet.ts';
import { JsonEdit } from '../kit/json-edit.ts';
import { keyIs, scanMembers } from '../kit/json-scan.ts';
import type { Plugins } from '../phases/chain.ts';
import type { Plugin } from '../plugin.ts';
import type { BodyThread } from './body-calls.ts';

const FIELD = 'data_parallel_rank';
const OPEN_OBJECT = 0x7b;

/**
 * Names the rank in the body of SGLang's /generate, which ignores the header that its OpenAI endpoints and vLLM read (SGLang
 * 0.5.23). The client's own bytes stay as they are, and so does a body that names a rank itself.
 */
const rankField = (thread: BodyThread): Plugin => ({
  name: 'data-parallel-rank',
  appliesTo: ({ path, head }) => path === '/generate' && head.get('x-data-parallel-rank') === undefined,
  requestBody(_, body, { engine, rank }) {
    if (engine !== 'sglang' || rank === null) return body;
    // It is the first plugin, so no other has this buffer.
    return thread.run('withRank', body, rank);
  },
});

/** @returns the same buffer if the body is not a JSON object or names a rank */
export function withRank(body: Buffer, rank: number): Buffer {
  let members = 0;
  let isNamed = false;
  const end = scanMembers(body, 0, body.length, (keyStart, keyEnd) => {
    members++;
    isNamed = keyIs(body, keyStart, keyEnd, FIELD) || keyIs(body, keyStart, keyEnd, 'routed_dp_rank');
    return !isNamed;
  });
  if (end < 0 || isNamed) return body;
  const inside = body.indexOf(OPEN_OBJECT) + 1;
  const edit = new JsonEdit(body);
  edit.replace(inside, inside, `"${FIELD}":${rank}${members > 0 ? ',' : ''}`);
  return edit.result();
}

/** Adds the plugin, before all others, when the first worker that is a rank joins. */
export function addRankField(fleet: Fleet, plugins: Plugins, thread: BodyThread): void {
  const end = fleet.onEvent((event, { rank }) => {
    if (event !== 'added' || rank === null) return;
    plugins.addFirst(rankField(thread));
    end();
  });
}
