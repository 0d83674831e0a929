import { setImmediate } from 'node:timers/promises';
import { sessionOf } from '../../../classify/routing-keys.ts';
import type { Exchange } from '../../../exchange.ts';
import { copied } from '../../../kit/copy-slices.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { Logger } from '../../../observe/log.ts';
import { Refused } from '../../../plugin.ts';
import type { OpenAnswer } from '../../thread/capture/capture-calls.ts';
import type { Recorder } from '../recorder.ts';
import type { TextOptions, TextState } from './text-strategy.ts';

/** Asks the recorder thread for the tokens of requests. */
export class TokenLookup {
  /** Requests that were sent unchanged because the recorder thread failed. */
  failures = 0;
  readonly #forward: TextOptions['forward'];
  readonly #recorder: Recorder;
  readonly #log: Logger;

  constructor({ forward }: TextOptions, recorder: Recorder, log: Logger) {
    this.#forward = forward;
    this.#recorder = recorder;
    this.#log = log;
  }

  /** @returns null: the tokens can't be known, or the request is over */
  async open(x: Exchange, state: TextState, body: Buffer): Promise<OpenAnswer | null> {
    const { thread, sessionHeaders, isRequired } = this.#recorder;
    const { tenant, model } = x;
    const { id, dialect } = state;
    const session = sessionOf(x, sessionHeaders);
    try {
      const copy = await copied(body);
      // A client may close a stream and send its next request at once, on another connection: where both can be read in one or two rounds
      // of the event loop, the request may come first. What the stream had so far has to be known.
      for (let rounds = 0; rounds < 2; rounds++) await setImmediate();
      if (x.outcome !== null) return null;
      const call = { id, dialect, tenant, model, forward: this.#forward, session, body: copy };
      const opened = await thread.ask('openCapture', call, [copy.buffer]);
      // The client disconnected in the meantime: the thread got that before the prompt was held.
      if (x.outcome !== null) thread.tell('captureDropped', { kind: 'text', id });
      return opened;
    } catch (error) {
      state.isMissed = true;
      const { message } = error as Error;
      const failures = ++this.failures;
      if ((failures & (failures - 1)) === 0)
        this.#log.error(
          { failures, error: message },
          'token lookup failed: requests are sent unchanged and not captured',
        );
      if (!isRequired) return null;
      const reason = `The tokens of this request can't be captured now, and --capture-required is set: ${message}`;
      throw new Refused(new RouterError('capture_failed', reason));
    }
  }
}
