import type { Turn } from '../../shared/turn.ts';
import { inPieces, numbersJson } from '../json-parts.ts';
import type { Trajectory } from './trajectory.ts';
import { headJson, outlineJson, said, textJson } from './turn-json.ts';

/** One trajectory per line, with its turns: position, outcome, request and response. */
export async function* toJsonl(trajectories: AsyncIterable<Trajectory>): AsyncGenerator<Uint8Array> {
  for await (const trajectory of trajectories) yield* inPieces(lineOf(trajectory));
}

function* lineOf(trajectory: Trajectory): Generator<string> {
  const { ids, mask, logprobs, turns } = trajectory;
  yield JSON.stringify(headJson(trajectory)).slice(0, -1);
  for (const [name, numbers] of Object.entries({ tokens: ids, loss_mask: mask, rollout_log_probs: logprobs })) {
    yield `,"${name}":`;
    yield* numbersJson(numbers);
  }
  yield ',"turns":[';
  // One by one: each has a request and a response, of up to a hundred megabytes together.
  for (const [i, turn] of turns.entries()) yield `${i === 0 ? '' : ','}${JSON.stringify(turnOf(turn))}`;
  yield ']}\n';
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
