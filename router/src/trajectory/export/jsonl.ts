import type { Trajectory } from './trajectory.ts';
import { outlineJson, said } from './turn-json.ts';

/** A trajectory a line, with its turns: where each stands, how it went, what was asked and answered. */
export async function* toJsonl(trajectories: AsyncIterable<Trajectory>): AsyncGenerator<Uint8Array> {
  for await (const trajectory of trajectories) {
    const { id, session, group, tenant, model, versions, turns } = trajectory;
    const line = {
      id,
      session,
      group,
      tenant,
      model,
      tokens: Array.from(trajectory.ids),
      loss_mask: Array.from(trajectory.mask),
      rollout_log_probs: Array.from(trajectory.logprobs),
      versions,
      turns: turns.map((turn) => ({
        ...outlineJson(turn),
        tokens: turn.ids.length,
        ...said('request', turn.request),
        ...said('answer', turn.answer),
        // Wherever later turns went on from: a replay compares with this.
        sampled: Array.from(turn.ids).filter((_, i) => turn.mask[i] === 1),
      })),
    };
    yield Buffer.from(`${JSON.stringify(line)}\n`);
  }
}
