import type { Turn } from '../../shared/turn.ts';
import type { Trajectory } from './trajectory.ts';
import { headJson, outlineJson, said, textJson } from './turn-json.ts';

/** With bodies a line may be longer than a string of V8 (half a billion characters): from this size on it is returned in pieces. */
const PIECE_LETTERS = 1_048_576;

/** One trajectory per line, with its turns: position, outcome, request and response. */
export async function* toJsonl(trajectories: AsyncIterable<Trajectory>): AsyncGenerator<Uint8Array> {
  for await (const trajectory of trajectories) {
    const { ids, mask, logprobs, turns } = trajectory;
    const head = {
      ...headJson(trajectory),
      tokens: Array.from(ids),
      loss_mask: Array.from(mask),
      // JSON has null for NaN: not known.
      rollout_log_probs: Array.from(logprobs),
    };
    let text = `${JSON.stringify(head).slice(0, -1)},"turns":[`;
    for (const [i, turn] of turns.entries()) {
      text += `${i === 0 ? '' : ','}${JSON.stringify(turnOf(turn))}`;
      if (text.length < PIECE_LETTERS) continue;
      yield Buffer.from(text);
      text = '';
    }
    yield Buffer.from(`${text}]}\n`);
  }
}

const turnOf = (turn: Turn) => ({
  ...outlineJson(turn),
  tokens: turn.ids.length,
  ...said('request', turn.request),
  ...said('answer', turn.answer),
  ...textJson(turn),
  // A replay compares with this, whichever turn later ones continue.
  sampled: Array.from(turn.ids).filter((_, i) => turn.mask[i] === 1),
});
