import { areLate } from '../late-answers.ts';
import { pathTo, textFrom } from '../tree/path.ts';
import type { OpenPrompt } from './capture.ts';
import type { GivenPrompt } from '../../../generation/asked.ts';
import type { Open } from './turn-ends.ts';

/** A request that may continue a stream of its session. */
interface Continuing {
  readonly session: string;
  readonly tenant: string;
  readonly models: readonly string[];
  readonly prompts: readonly GivenPrompt[];
}

/**
 * Waits for the end of the streams that a request may continue: its client may have closed them before the router knows.
 * @returns whether one of them still runs
 */
export async function continuesRunning(request: Continuing, open: Iterable<Open>): Promise<boolean> {
  // Without a session, streams of other trajectories with the same prompt would delay each request.
  if (request.session === '') return false;
  const streams = [...open].filter((stream) => mayContinue(request, stream));
  return areLate(streams.map(({ over }) => over.promise));
}

function mayContinue(request: Continuing, stream: Open): boolean {
  const { prompts, models } = stream;
  if (!stream.isStream || stream.session !== request.session || stream.tenant !== request.tenant) return false;
  // Its turns are complete: only the end of the response is missing.
  if (stream.recorded.size >= prompts.length * stream.samples) return false;
  return request.prompts.some((prompt, i) =>
    prompts.some((earlier, j) => models[j] === request.models[i] && isLonger(prompt, earlier)),
  );
}

/** Whether a prompt begins with another one, and goes on. */
function isLonger(prompt: GivenPrompt, { end, tokens }: OpenPrompt): boolean {
  if (typeof prompt !== 'string') return prompt.length > tokens && pathTo(end).ids.every((id, i) => id === prompt[i]);
  const text = Buffer.from(prompt);
  const earlier = textFrom(end, 0);
  return text.length > earlier.length && earlier.equals(text.subarray(0, earlier.length));
}
