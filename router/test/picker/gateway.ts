import type { TestContext } from 'node:test';
import { type ClientDuplexStream, credentials, loadPackageDefinition } from '@grpc/grpc-js';
import type { HeaderValue, ProcessingRequest, ProcessingResponse, Value } from '../../src/picker/messages.ts';
import { services } from '../../src/picker/messages.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';

type Stream = ClientDuplexStream<ProcessingRequest, ProcessingResponse>;

/** What a gateway sends of a request. */
export interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Left out: the headers end the request. */
  readonly body?: readonly string[];
  /** `ProtocolConfiguration`; 'not sent': as gateways do that do not send it. */
  readonly mode?: number | 'not sent';
  readonly responseMode?: number;
  readonly subset?: string | readonly string[];
  /** Fields of `envoy.lb.subset_hint`. */
  readonly hints?: Readonly<Record<string, Value>>;
  /** Header lines beside `headers`. */
  readonly lines?: readonly HeaderValue[];
}

/** One request: a stream of messages, each of which is answered. */
export class Processed {
  readonly stream: Stream;
  readonly #got: ProcessingResponse[] = [];
  #wake: () => void = () => {};
  isOver = false;

  constructor(stream: Stream) {
    this.stream = stream;
    stream.on('data', (message: ProcessingResponse) => {
      this.#got.push(message);
      this.#wake();
    });
    for (const event of ['end', 'error'])
      stream.on(event, () => {
        this.isOver = true;
        this.#wake();
      });
  }

  async next(): Promise<ProcessingResponse> {
    while (this.#got.length === 0) {
      if (this.isOver) throw new Error('the picker has ended the stream');
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    return this.#got.shift()!;
  }

  /** The engine's response, as far as the picker sees it. `address`: the attribute `upstream.address` of Envoy. */
  async respond(status = 200, served?: string, address?: string): Promise<void> {
    const lb = { fields: { 'x-gateway-destination-endpoint-served': { stringValue: served ?? '' } } };
    this.stream.write({
      responseHeaders: { headers: { headers: [header(':status', String(status))] } },
      ...(served === undefined ? {} : { metadataContext: { filterMetadata: { 'envoy.lb': lb } } }),
      ...(address === undefined ? {} : { attributes: { 'envoy.filters.http.ext_proc': attributes(address) } }),
    });
    await this.next();
  }

  async end(): Promise<void> {
    this.stream.end();
    while (!this.isOver) await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}

const attributes = (address: string) => ({ fields: { 'upstream.address': { stringValue: address } } });

const header = (key: string, value: string) => ({ key, rawValue: Buffer.from(value) });

/** A router that is an endpoint picker, and what a gateway asks it. */
export async function startGateway(t: TestContext, options: RouterOptions = {}) {
  const router = await startTestRouter(t, { pickerPort: 0, pickerHealthPort: 0, pickerTls: 'off', ...options });
  const health = new (loaded().grpc.health.v1.Health)(router.picker!.healthAddress, credentials.createInsecure());
  t.after(() => health.close());
  const ask = askingAt(t, router.picker!.address);
  /** The body that goes to the engine. */
  const bodyBack = async (processed: Processed): Promise<Buffer> => {
    const back: Buffer[] = [];
    for (;;) {
      const { body, endOfStream } = (await processed.next()).requestBody!.response.bodyMutation!.streamedResponse!;
      back.push(body!);
      if (endOfStream === true) return Buffer.concat(back);
    }
  };
  const sendBody = ({ stream }: Processed, parts: readonly (string | Buffer)[]): void => {
    for (const [i, part] of parts.entries())
      stream.write({ requestBody: { body: Buffer.from(part), endOfStream: i === parts.length - 1 } });
  };
  const healthOf = (service: string): Promise<unknown> =>
    new Promise((resolve) => {
      health.Check!({ service }, (error: { code: number } | null, said: { status: number }) =>
        resolve(error?.code ?? said.status),
      );
    });
  return { router, ask, sendBody, bodyBack, healthOf };
}

/** Asks the picker at an address, as a gateway does. */
export function askingAt(t: TestContext, address: string): (asked: Asked) => Processed {
  const { ExternalProcessor } = loaded().envoy.service.ext_proc.v3;
  const client = new ExternalProcessor(address, credentials.createInsecure());
  t.after(() => client.close());
  return ({
    method = 'POST',
    path = '/v1/completions',
    headers = {},
    body,
    mode = 0,
    responseMode = 0,
    subset,
    hints,
    lines = [],
  }: Asked): Processed => {
    const processed = new Processed(client.Process!() as Stream);
    const all = { ':method': method, ':path': path, ':authority': 'gateway', ':scheme': 'http', ...headers };
    const hint =
      typeof subset === 'string'
        ? { stringValue: subset }
        : { listValue: { values: (subset ?? []).map((stringValue) => ({ stringValue })) } };
    const limits = { fields: hints ?? { 'x-gateway-destination-endpoint-subset': hint } };
    processed.stream.write({
      requestHeaders: {
        headers: { headers: [...Object.entries(all).map(([key, value]) => header(key, value)), ...lines] },
        endOfStream: body === undefined,
      },
      ...(mode === 'not sent' ? {} : { protocolConfig: { requestBodyMode: mode, responseBodyMode: responseMode } }),
      ...(subset === undefined && hints === undefined
        ? {}
        : { metadataContext: { filterMetadata: { 'envoy.lb.subset_hint': limits } } }),
    });
    return processed;
  };
}

const loaded = () =>
  loadPackageDefinition(services()) as unknown as {
    envoy: { service: { ext_proc: { v3: { ExternalProcessor: Client } } } };
    grpc: { health: { v1: { Health: Client } } };
  };

type Client = new (
  address: string,
  how: ReturnType<typeof credentials.createInsecure>,
) => { close(): void } & Record<string, (...args: any[]) => unknown>;

/** The endpoint that the gateway gets; null: none. */
export function destinationOf({ requestHeaders, requestBody, dynamicMetadata }: ProcessingResponse): string | null {
  const set = (requestHeaders ?? requestBody)?.response.headerMutation?.setHeaders ?? [];
  const found = set.find(({ header: { key } }) => key === 'x-gateway-destination-endpoint');
  if (found === undefined) return null;
  const said = Buffer.from(found.header.rawValue!).toString();
  const lb = dynamicMetadata?.fields['envoy.lb']?.structValue?.fields['x-gateway-destination-endpoint']?.stringValue;
  if (lb !== said) throw new Error(`the header says ${said}, the metadata ${lb}`);
  return said;
}
