import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { copied } from '../../kit/copy-slices.ts';
import type { Logger } from '../../observe/log.ts';
import type { Plugin } from '../../plugin.ts';
import { after } from '../../threads/worker-thread.ts';
import { MESSAGES_PATH, RESPONSES_PATH } from '../../engines/dialects/calls.ts';
import { Capture, type CaptureStrategy, type Captured, MAX_BODY_BYTES, notCaptured } from './capture.ts';
import { UncapturedLog } from './exchange-facts.ts';
import type { Recorder } from './recorder.ts';

interface CallState extends Captured {
  request: Uint8Array | null;
  /** The token ids in the engine's response are for the record only: the client did not ask for them. */
  hidesIds: boolean;
}

/** Which calls are recorded. */
type Takes = (x: Exchange) => boolean;

/** Calls of `/v1/messages` and `/v1/responses`: they are recorded with their token ids if the engine returns them, else as text. */
export class CallStrategy implements CaptureStrategy<CallState> {
  readonly kind = 'call';
  readonly holdsEnds = false;
  readonly plugins: readonly Plugin[];
  readonly reported: (problem: string | null, worker: string) => void;
  readonly #recorder: Recorder;
  readonly #mayTake: Takes[] = [];
  readonly #takes: Takes[] = [];

  constructor(recorder: Recorder, log: Logger) {
    this.#recorder = recorder;
    const uncaptured = new UncapturedLog(log, 'a request was not captured');
    this.reported = (problem, worker) => uncaptured.add(problem, worker);
    const capture = new Capture(recorder, this);
    const { timeoutMs } = capture;
    const phases = (path: string): Plugin => ({
      name: 'trajectories',
      appliesTo: (x: Exchange) =>
        x.path === path && x.head.method === 'POST' && this.#mayTake.some((mayTake) => mayTake(x)),
      requestBody: (x: Exchange, body, worker) =>
        this.#takes.some((takes) => takes(x)) ? capture.requestBody(x, body, worker) : body,
      observeResponse: (x: Exchange, head) => capture.observeResponse(x, head),
      finished: (x: Exchange) => capture.finished(x),
      timeoutMs,
    });
    const change: Plugin['responseBody'] = (x: Exchange, bytes) => {
      if (capture.capturedOf(x, x.status)?.hidesIds !== true) return bytes;
      return after(recorder.thread.runOnCopy('withoutRawMessages', bytes), (made) => made.bytes);
    };
    this.plugins = [phases(MESSAGES_PATH), { ...phases(RESPONSES_PATH), responseEvent: change, responseBody: change }];
  }

  /** From now on the calls that `takes` names are recorded, too. @param mayTake false if the head alone shows that it will not name it */
  record(mayTake: Takes, takes: Takes): void {
    this.#mayTake.push(mayTake);
    this.#takes.push(takes);
  }

  begin(): CallState {
    return { ...notCaptured(0), request: null, hidesIds: false };
  }

  tooLarge(_x: Exchange, worker: Worker): void {
    this.reported(`a request may have ${MAX_BODY_BYTES} bytes`, worker.url);
  }

  overflowed(x: Exchange): void {
    this.reported('its answer is too large', x.worker?.url ?? '');
  }

  async open(x: Exchange, state: CallState, body: Buffer, worker: Worker): Promise<Buffer> {
    state.request ??= await copied(body);
    state.hidesIds = false;
    state.expected = { choices: 1, mayBeCumulative: false, hasMore: true, isUnnamed: true };
    if (x.path !== RESPONSES_PATH || worker.engine !== 'vllm') return body;
    const asking = await Promise.resolve(this.#recorder.thread.runOnCopy('askingForRawMessages', body)).catch(
      () => null,
    );
    state.hidesIds = asking?.isOurs ?? false;
    return asking?.body ?? body;
  }

  takeRequest(state: CallState): Uint8Array | null {
    const { request } = state;
    state.request = null;
    return request;
  }
}
