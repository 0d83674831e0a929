import type { Turn } from '../../shared/turn.ts';
import { numbersJson } from '../numbers-json.ts';
import type { Trajectory } from './trajectory.ts';
import { headJson, outlineJson, said, textJson } from './turn-json.ts';

/** From this size on a line is returned in pieces: it may be longer than a string of V8, and take long to make. */
const PIECE_LETTERS = 65_536;

/** One trajectory per line, with its turns: position, outcome, request and response. */
export async function* toJsonl(trajectories: AsyncIterable<Trajectory>): AsyncGenerator<Uint8Array> {
  for await (const trajectory of trajectories) {
    let text = '';
    for (const part of lineOf(trajectory)) {
      text += part;
      if (text.length < PIECE_LETTERS) continue;
      yield Buffer.from(text);
      text = '';
    }
    yield Buffer.from(`${text}\n`);
  }
}

function* lineOf(trajectory: Trajectory): Generator<string> {
  const { ids, mask, logprobs, turns } = trajectory;
  yield JSON.stringify(headJson(trajectory)).slice(0, -1);
  for (const [name, numbers] of Object.entries({ tokens: ids, loss_mask: mask, rollout_log_probs: logprobs })) {
    yield `,"${name}":`;
    yield* numbersJson(numbers);
  }
  yield ',"turns":[';
  for (const [i, turn] of turns.entries()) yield `${i === 0 ? '' : ','}${JSON.stringify(turnOf(turn))}`;
  yield ']}';
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
