import { STATUS_CODES } from 'node:http';
import { errorFormatOf, normalPath } from '../classify/classify.ts';
import { readUsage, withEarlier } from '../engines/usage.ts';
import type { Carrier, Exchange, Started } from '../exchange.ts';
import type { Leg, Worker } from '../fleet/worker.ts';
import type { Leading } from '../forward/attempt-context.ts';
import { sendError } from '../forward/errors.ts';
import { KEY_FIELDS } from '../forward/headers.ts';
import { RouterError } from '../kit/errors.ts';
import type { Pipeline } from '../pipeline.ts';
import { BufferSink } from '../wire/buffer-sink.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { ownStreamHead } from '../wire/response-head.ts';
import { CLIENT_LEFT, COMPLETE, type ResultListener, refusalError } from '../wire/result.ts';
import {
  DESTINATION,
  destinationMetadata,
  endpointOf,
  isIn,
  knownEndpointOf,
  servedEndpoint,
  subsetOf,
} from './endpoints.ts';
import { headOf } from './gateway-head.ts';
import {
  BODY_MODE,
  type CommonResponse,
  type HttpBody,
  type HttpHeaders,
  type ProcessingRequest,
  type ProcessingResponse,
  headerText,
  settingHeaders,
  withResponseBodies,
} from './messages.ts';

export interface PickerParts {
  readonly pipeline: Pick<Pipeline, 'dispatch'>;
  readonly options: { readonly maxPayloadBytes: number; readonly fallbacks: number };
  /** The router's own endpoints and control paths: they are not served through a gateway. */
  readonly isControl: (path: string, method: string) => boolean;
  /** The other workers that may get the request, those with the fewest requests first. */
  readonly othersFor: (x: Exchange, worker: Worker) => readonly Worker[];
  /** The worker at an endpoint. */
  readonly workerAt: (endpoint: string) => Worker | null;
  /** A request has a body that the gateway does not send before the choice. @returns why that cannot be; null: it can */
  readonly bodyMissed: (head: RequestHead) => RouterError | null;
  /** Whether the usage in responses to generations is wanted. */
  readonly wantsUsage: () => boolean;
  /** Another worker than the placed one has served the request: the gateway could not use the placed one. */
  readonly served: (x: Exchange, worker: Worker, placed: Worker) => void;
}

/** A part of a changed body: Envoy refuses messages of more than 4 MB, and streamed parts above its buffer limit. */
const PART_BYTES = 60_000;

/**
 * One request whose bytes a gateway moves: Envoy's filter `ext_proc` opens a stream for it and sends what it reads of the request and of the
 * response. The request takes all steps of the pipeline; in place of an attempt the gateway gets the endpoint of the worker.
 */
export class PickedRequest implements Carrier {
  readonly #parts: PickerParts;
  readonly #stream: GatewayStream;
  readonly #sink = new BufferSink({ onChange: () => this.#respondItself() });
  readonly #body = new RequestBody(new RetryBudget(Infinity), () => {});
  #requestMode: number = BODY_MODE.none;
  #responseMode: number = BODY_MODE.none;
  #x: Exchange | null = null;
  /** The message of the request that the gateway waits to have answered; null: none. */
  #pending: 'requestHeaders' | 'requestBody' | null = null;
  /** Parts of the body that the gateway gets back after the answer to the headers; null: they go back as they come. */
  #parked: HttpBody[] | null = [];
  #hasTrailers = false;
  /** Made while no message waited for an answer. */
  #decision: Decision | null = null;
  #isDecided = false;
  #leading: Leading | null = null;
  #listener: ResultListener<Leading> | null = null;
  #hasResponse = false;
  /** A part of the response's body came. */
  #hasBody = false;
  /** Other response bodies were asked for: the gateway may have ignored that. */
  #hasOverridden = false;
  #isStream = false;
  #isOver = false;
  /** Set while the endpoints are limited. */
  #subset: readonly string[] | null = null;

  constructor(parts: PickerParts, stream: GatewayStream) {
    this.#parts = parts;
    this.#stream = stream;
  }

  take(message: ProcessingRequest): void {
    const { requestHeaders, requestBody, responseHeaders, responseBody } = message;
    if (requestHeaders !== undefined) this.#begin(requestHeaders, message);
    else if (requestBody !== undefined) this.#bodyCame(requestBody);
    else if (message.requestTrailers !== undefined) this.#trailersCame();
    else if (responseHeaders !== undefined) this.#responseBegan(responseHeaders, message);
    else if (responseBody !== undefined) this.#responseCame(responseBody);
    else if (message.responseTrailers !== undefined) {
      this.#stream.write({ responseTrailers: {} });
      this.#complete();
    }
  }

  /** The gateway has ended the stream: the response is complete, as far as it says, or its client has left. */
  left(): void {
    const { none, bufferedPartial } = BODY_MODE;
    const sendsNone = !this.#hasBody && (this.#responseMode === none || this.#hasOverridden);
    const sawAll = this.#hasResponse && (sendsNone || this.#responseMode === bufferedPartial);
    if (sawAll) this.#complete();
    else if (this.#x !== null && this.#x.outcome === null) this.#x.ended(this, CLIENT_LEFT);
    this.#isOver = true;
  }

  /** The picker closes: the gateway goes on alone with a request that has its engine, and the gateway's failure mode decides about others. */
  release(): void {
    if (this.#isDecided) this.#stream.end();
    else this.#stream.fail(CLOSING);
    this.left();
  }

  #begin({ headers, endOfStream = false }: HttpHeaders, message: ProcessingRequest): void {
    if (this.#x !== null) return;
    // Gateways that do not say it send bodies as the endpoint picker protocol has them.
    const { protocolConfig: modes = null } = message;
    this.#requestMode = modes === null ? BODY_MODE.fullDuplex : (modes.requestBodyMode ?? BODY_MODE.none);
    this.#responseMode = modes === null ? BODY_MODE.fullDuplex : (modes.responseBodyMode ?? BODY_MODE.none);
    this.#subset = subsetOf(message);
    this.#pending = 'requestHeaders';
    const all = (headers?.headers ?? []).map((each) => [each.key.toLowerCase(), headerText(each)] as const);
    const head = headOf(all, endOfStream);
    const path = normalPath(head.target);
    const isControl = head.refusal === null && this.#parts.isControl(path, head.method);
    if (head.refusal !== null) return sendError(this.#sink, refusalError(head.refusal), errorFormatOf(path));
    if (isControl) return sendError(this.#sink, notHere(path), errorFormatOf(path));
    const problem = endOfStream || this.#getsBody ? null : this.#parts.bodyMissed(head);
    if (problem !== null) return sendError(this.#sink, problem, errorFormatOf(path));
    if (endOfStream || !this.#getsBody) this.#body.finish();
    this.#x = this.#parts.pipeline.dispatch(head, this.#body, this.#sink, (x) => {
      this.#x = x;
      x.carrier = this;
    });
    // Envoy buffers the body after the answer to the headers only.
    if (this.#requestMode === BODY_MODE.buffered && !endOfStream && this.#pending !== null && !this.#isDecided)
      this.#answer({});
  }

  /** With the other modes the headers go on before the whole body is here: it cannot decide anything, and cannot be changed. */
  get #getsBody(): boolean {
    return this.#requestMode === BODY_MODE.buffered || this.#requestMode === BODY_MODE.fullDuplex;
  }

  #bodyCame({ body = Buffer.alloc(0), endOfStream = false }: HttpBody): void {
    const mode = this.#requestMode;
    const x = this.#x;
    if (!this.#getsBody) return this.#stream.write({ requestBody: { response: {} } });
    if (mode === BODY_MODE.fullDuplex) this.#giveBack({ body, endOfStream });
    else if (this.#isDecided) return this.#stream.write({ requestBody: { response: {} } });
    else {
      this.#pending = 'requestBody';
      if (this.#decision !== null) return this.#decide(this.#decision);
    }
    if (x === null || x.outcome !== null || this.#body.isComplete) return;
    const { maxPayloadBytes } = this.#parts.options;
    if (!this.#isDecided && this.#body.bytes + body.length > maxPayloadBytes)
      return x.ended(this, { kind: 'refused', error: tooLarge(maxPayloadBytes) });
    if (!this.#isDecided) this.#body.pushCopy(body, 0, body.length);
    if (endOfStream || mode !== BODY_MODE.fullDuplex) this.#finishBody();
  }

  #trailersCame(): void {
    this.#hasTrailers = true;
    const isWaiting = this.#pending !== null;
    this.#finishBody();
    // Else they follow the answer that the gateway waits for.
    if (!isWaiting) this.#giveTrailersBack();
  }

  #giveTrailersBack(): void {
    this.#stream.write({ requestTrailers: {} });
  }

  #finishBody(): void {
    if (!this.#body.isComplete) this.#body.finish();
  }

  /** A part of the body goes to the engine, once it is known which one that is. */
  #giveBack(part: HttpBody): void {
    if (this.#parked !== null) this.#parked.push(part);
    else this.#stream.write({ requestBody: { response: { bodyMutation: { streamedResponse: part } } } });
  }

  attempt(x: Exchange, [leg]: readonly Leg[], listener: ResultListener<Leading>): Started {
    const { worker } = leg!;
    this.#leading = { x, worker };
    this.#listener = listener;
    const isOver = (): boolean => this.#isOver;
    return {
      get isOver() {
        return isOver();
      },
      start: (_isFresh, changed) => {
        x.sentMs = performance.now();
        const known = endpointOf(worker);
        if (typeof known === 'string') return this.#decide({ worker, endpoint: known, changed });
        known.then(
          (endpoint) => x.outcome === null && this.#decide({ worker, endpoint, changed }),
          (error: NodeJS.ErrnoException) =>
            listener.ended(this.#leading!, { kind: 'failed', failure: 'connect', detail: error.code ?? error.message }),
        );
      },
      abort: () => {},
    };
  }

  allows(worker: Worker): boolean {
    return this.#subset === null || isIn(this.#subset, worker);
  }

  #decide(decision: Decision): void {
    // The gateway waits for nothing: its next message, the body that it buffers, is answered so.
    if (this.#pending === null) {
      this.#decision = decision;
      return;
    }
    const { worker, changed } = decision;
    this.#isDecided = true;
    const { authorization } = worker.key;
    const { head, traceLine, limit } = this.#leading!.x;
    // From here on only the gateway can end the request: until it does, it is in flight.
    limit?.clear();
    const endpoint = [decision.endpoint, ...this.#fallbacks(worker)].join();
    const headers: [string, string][] = [[DESTINATION, endpoint]];
    if (authorization !== '') headers.push(['authorization', authorization]);
    if (traceLine !== null) headers.push(['traceparent', traceLine.slice(traceLine.indexOf(' ') + 1, -'\r\n'.length)]);
    const isWhole = changed !== null && this.#pending === 'requestBody';
    // Envoy refuses a body of another length than the header says.
    if (isWhole) headers.push(['content-length', String(changed.length)]);
    this.#answer(
      {
        headerMutation: settingHeaders(headers, removedFor(head, worker)),
        clearRouteCache: true,
        ...(isWhole ? { bodyMutation: { body: changed } } : {}),
      },
      endpoint,
    );
    const parked = this.#parked ?? [];
    this.#parked = null;
    if (this.#requestMode === BODY_MODE.fullDuplex)
      for (const part of changed === null ? parked : partsOf(changed, this.#hasTrailers)) this.#giveBack(part);
    if (this.#hasTrailers) this.#giveTrailersBack();
  }

  /** Endpoints that the gateway may try after the first. One whose key differs would get the wrong one. */
  #fallbacks(worker: Worker): string[] {
    const { options, othersFor } = this.#parts;
    if (options.fallbacks === 0) return [];
    const others = othersFor(this.#leading!.x, worker).filter(
      ({ key }) => key.authorization === worker.key.authorization,
    );
    return others.flatMap((other) => knownEndpointOf(other) ?? []).slice(0, options.fallbacks);
  }

  /** @param endpoint '': not decided yet */
  #answer(response: CommonResponse, endpoint = ''): void {
    const pending = this.#pending!;
    this.#pending = null;
    const wanted = pending === 'requestHeaders' ? this.#wantedBodies() : null;
    this.#hasOverridden ||= wanted !== null;
    this.#stream.write({
      [pending]: { response },
      ...(endpoint === '' ? {} : { dynamicMetadata: destinationMetadata(endpoint) }),
      ...(wanted === null ? {} : { modeOverride: withResponseBodies(this.#requestMode, wanted) }),
    });
  }

  /** The mode of response bodies that suits this request; null: the gateway has it already, or cannot change it (full duplex). */
  #wantedBodies(): number | null {
    const { none, streamed, bufferedPartial, fullDuplex } = BODY_MODE;
    // Envoy ignores the whole override if either body is sent in this mode.
    if (this.#responseMode === fullDuplex || this.#requestMode === fullDuplex) return null;
    const isWanted = this.#x!.isGeneration && this.#parts.wantsUsage();
    if (isWanted === (this.#responseMode !== none && this.#responseMode !== bufferedPartial)) return null;
    return isWanted ? streamed : none;
  }

  /** The router responds in the engine's place: with an error, or with what it knows itself. */
  #respondItself(): void {
    const { response, state } = this.#sink;
    if (state !== 'complete' || response === null || this.#isDecided || this.#isOver) return;
    this.#isDecided = true;
    this.#isOver = true;
    if (this.#x?.error?.code === 'shutting_down') return this.#stream.fail(CLOSING);
    const headers = response.pairs().filter(([name]) => name.toLowerCase() !== 'content-length');
    this.#stream.write({
      immediateResponse: {
        status: { code: response.status },
        headers: settingHeaders(headers),
        body: Buffer.concat(this.#sink.take()),
      },
    });
    this.#stream.end();
  }

  #responseBegan({ headers, endOfStream = false }: HttpHeaders, message: ProcessingRequest): void {
    this.#stream.write({ responseHeaders: { response: {} } });
    const leading = this.#leading;
    if (leading === null || this.#hasResponse || leading.x.outcome !== null) return;
    this.#hasResponse = true;
    const { x } = leading;
    const at = servedEndpoint(message);
    const served = at === null ? null : this.#parts.workerAt(at);
    if (served !== null && served !== leading.worker) {
      this.#parts.served(x, served, leading.worker);
      this.#leading = { x, worker: served };
    }
    const values = new Map(headers?.headers.map((each) => [each.key.toLowerCase(), headerText(each)]));
    const status = Number(values.get(':status') ?? 0);
    const head = ownStreamHead(status, STATUS_CODES[status] ?? '', '', true);
    head.isEventStream = /^text\/event-stream/i.test(values.get('content-type') ?? '');
    this.#isStream = head.isEventStream;
    x.headGoesTo(x.sink);
    this.#listener!.began?.(this.#leading!, head);
    if (endOfStream) this.#complete();
  }

  #responseCame({ body = Buffer.alloc(0), endOfStream = false }: HttpBody): void {
    const isDuplex = this.#responseMode === BODY_MODE.fullDuplex;
    this.#stream.write({
      responseBody: { response: isDuplex ? { bodyMutation: { streamedResponse: { body, endOfStream } } } : {} },
    });
    this.#hasBody = true;
    const x = this.#leading?.x;
    if (x === undefined || x.outcome !== null) return;
    x.answerBytes += body.length;
    x.lastByteMs = performance.now();
    if (body.length > 0 && x.answerReads++ === 0) x.firstTokenMs = x.lastByteMs;
    if (x.isGeneration && body.length > 0)
      x.usage = withEarlier(readUsage(body, 0, body.length, this.#isStream, endOfStream), x.usage);
    if (endOfStream) this.#complete();
  }

  #complete(): void {
    const leading = this.#leading;
    if (!this.#hasResponse || leading === null || leading.x.outcome !== null) return;
    this.#isOver = true;
    // Bodies that the gateway does not send end with the stream.
    leading.x.lastByteMs = performance.now();
    this.#listener!.ended(leading, COMPLETE);
  }
}

const CLOSING = 'The endpoint picker is shutting down.';

/** The stream of one request, as gRPC has it. */
export interface GatewayStream {
  write(message: ProcessingResponse): void;
  /** Ends it after what was written: the gateway goes on without the picker. */
  end(): void;
  /** Breaks it: the failure mode of the gateway decides what becomes of the request. */
  fail(details: string): void;
}

interface Decision {
  readonly worker: Worker;
  readonly endpoint: string;
  /** A body in place of the client's; null: the client's. */
  readonly changed: Buffer | null;
}

/** Fields that the gateway writes itself. */
const FRAMING: ReadonlySet<string> = new Set(['host', 'content-length', 'transfer-encoding']);

/** Fields that engines must not get: those that the pipeline has dropped, the router's own keys among them, and keys beside the worker's. */
const removedFor = (head: RequestHead, { key }: Worker): string[] => [
  ...head.droppedNames().filter((name) => !FRAMING.has(name)),
  ...(key.authorization === '' ? [] : KEY_FIELDS),
];

/** @param hasTrailers they end the stream, not the body */
function* partsOf(body: Buffer, hasTrailers: boolean): Generator<HttpBody> {
  for (let at = 0; at < body.length || at === 0; at += PART_BYTES)
    yield { body: body.subarray(at, at + PART_BYTES), endOfStream: !hasTrailers && at + PART_BYTES >= body.length };
}

const notHere = (path: string): RouterError =>
  new RouterError('forbidden', `${path} is served at the router's own port (--port), not through a gateway.`);

const tooLarge = (maxBytes: number): RouterError =>
  new RouterError('payload_too_large', `The request body has more than ${maxBytes} bytes (--max-payload-size).`);
