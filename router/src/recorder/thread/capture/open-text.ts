import type { GivenPrompt } from '../../../generation/asked.ts';
import type { Dialect, DialectName } from '../../../generation/dialect.ts';
import type { GivenRequest } from '../../shared/read-request.ts';
import type { Turn } from '../../shared/turn.ts';
import { type OpenCapture, areLate } from '../captures.ts';
import type { ChoiceEvents } from '../read/choice-events.ts';
import { idsTo, textFrom } from '../tree/path.ts';
import type { OpenPrompt } from './known-tokens.ts';

/** A request for samples of texts or ids. */
export interface TextRequest {
  readonly dialect: DialectName;
  /** Each tenant has trees of its own. */
  readonly tenant: string;
  /** '': the request names none. */
  readonly session: string;
  /** As the router knows it; the model in the request takes precedence. */
  readonly model: string;
  readonly body: Uint8Array;
}

/** A request whose prompts are held in the tree until its response has come. */
export interface OpenText extends OpenCapture, Pick<TextRequest, 'tenant' | 'session'> {
  readonly dialect: Dialect;
  /** One for each prompt. */
  readonly models: readonly string[];
  readonly samples: number;
  readonly prompts: readonly OpenPrompt[];
  readonly isStream: boolean;
  /** As the client sent it, if bodies are kept. */
  readonly request: Uint8Array | null;
  readonly recorded: Set<number>;
  /** The turn that has the response for all samples, while more of the response may come; null: there is none, or bodies are not kept. */
  first: Turn | null;
  /** Of the response so far. */
  readonly events: ChoiceEvents;
  /** A part of the stream lacked what its samples need, as the ids of SGLang, which come at the end: further parts are not read before. */
  isReadAtEnd: boolean;
}

/**
 * Waits for the end of the streams that a request may continue: its client may have closed them before the router knows.
 * @returns whether one of them still runs
 */
export async function continuesRunning(
  open: Iterable<OpenText>,
  { session, tenant, model }: TextRequest,
  request: GivenRequest,
): Promise<boolean> {
  // Without a session, streams of other trajectories with the same prompt would delay each request.
  if (session === '') return false;
  const streams = [...open].filter(
    (stream) =>
      stream.isStream &&
      stream.session === session &&
      stream.tenant === tenant &&
      // Its turns are complete: only the end of the response is missing.
      stream.recorded.size < stream.prompts.length * stream.samples &&
      request.prompts.some((prompt, i) => {
        const own = request.models[i]! || model;
        return stream.prompts.some((earlier, j) => stream.models[j] === own && isLonger(prompt, earlier));
      }),
  );
  return areLate(streams.map(({ over }) => over.promise));
}

/** Whether a prompt begins with another one, and goes on. */
function isLonger(prompt: GivenPrompt, { end, tokens }: OpenPrompt): boolean {
  if (typeof prompt !== 'string') return prompt.length > tokens && idsTo(end).every((id, i) => id === prompt[i]);
  const text = Buffer.from(prompt);
  const earlier = textFrom(end, 0);
  return text.length > earlier.length && earlier.equals(text.subarray(0, earlier.length));
}
