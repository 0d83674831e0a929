import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type IncomingHttpHeaders, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { buffer } from 'node:stream/consumers';
import { zstdDecompressSync } from 'node:zlib';

interface TrainerRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

type Json = Record<string, unknown>;

/** What a test says in place of the stub; undefined: the stub answers. */
type Answerer = (request: TrainerRequest, response: ServerResponse) => boolean | undefined;

/**
 * A Tinker server that trains as far as a client can see: models, steps, and checkpoints, which are directories of LoRA adapters in
 * `folder`, by model and checkpoint.
 */
export class TrainerStub {
  url = '';
  readonly requests: TrainerRequest[] = [];
  onRequest: Answerer = () => undefined;
  readonly #folder: string;
  readonly #futures = new Map<string, Json | 'trained'>();
  readonly #samplers = new Map<string, Json>();
  #made = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  of(target: string): TrainerRequest[] {
    return this.requests.filter((request) => request.target === `/api/v1${target}`);
  }

  answer(request: TrainerRequest, response: ServerResponse): void {
    this.requests.push(request);
    if (this.onRequest(request, response) === true) return;
    const { method, target, headers } = request;
    const json = (value: Json, status = 200): void => {
      const text = JSON.stringify(value);
      response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
      response.end(text);
    };
    const promise = (result: Json | 'trained'): void => {
      const id = `future_${++this.#made}`;
      this.#futures.set(id, result);
      json({ request_id: id, model_id: 'model_1' });
    };
    const [, path = '', id = ''] = /^\/api\/v1\/(\w+(?:\/config)?)\/?([^?]*)/.exec(target) ?? [];
    switch (`${method} ${path}`) {
      case 'POST client/config':
        return json({ proto_compress_fwdbwd: true, sample_use_retrieve_futures: true, pjwt_auth_enabled: true });
      case 'GET get_server_capabilities':
        return json({ supported_models: [{ model_name: 'sim', trainable: true }, { model_name: 'larger' }] });
      case 'POST create_session':
        return json({ type: 'create_session', session_id: `trainer_${++this.#made}`, info_message: 'of the trainer' });
      case 'POST session_heartbeat':
        return json({ type: 'session_heartbeat' });
      case 'POST sessions':
        return json({});
      case 'POST create_model':
        return promise({ type: 'create_model', model_id: 'model_1' });
      case 'POST get_info':
        return json({ type: 'get_info', model_id: 'model_1', model_data: { model_name: 'sim' }, is_lora: true });
      case 'POST forward_backward': {
        const { body } = request;
        const plain = headers['content-encoding'] === 'zstd' ? zstdDecompressSync(body) : body;
        if (!plain.includes('model_1')) return json({ detail: 'the body is not that of a client' }, 400);
        return promise('trained');
      }
      case 'POST optim_step':
        return promise({ type: 'optim_step' });
      case 'POST save_weights_for_sampler': {
        const { path: name = null } = JSON.parse(request.body.toString()) as { path?: string | null };
        const checkpoint = name ?? `unnamed-${++this.#made}`;
        const modelPath = this.save(checkpoint);
        if (name !== null) return promise({ type: 'save_weights_for_sampler', path: modelPath });
        const sampler = this.createSampler(modelPath);
        return promise({ type: 'save_weights_for_sampler', path: null, sampling_session_id: sampler });
      }
      case 'GET samplers': {
        const sampler = this.#samplers.get(id);
        return sampler === undefined ? json({ detail: 'Sampler not found' }, 404) : json(sampler);
      }
      case 'POST retrieve_future': {
        const { request_id: wanted } = JSON.parse(request.body.toString()) as { request_id: string };
        const result = this.#futures.get(wanted);
        if (result === undefined) return json({ detail: `Future ${wanted} not found` }, 404);
        if (result !== 'trained') return json(result);
        if (headers.accept?.includes('application/x-protobuf') !== true) return json(trainedJson);
        response.writeHead(200, { 'content-type': 'application/x-protobuf', 'content-length': trainedProto.length });
        return void response.end(trainedProto);
      }
      default:
        return json({ detail: 'Not Found' }, 404);
    }
  }

  /** @returns the path of weights that were saved */
  save(checkpoint: string): string {
    const directory = join(this.#folder, 'model_1', checkpoint);
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'adapter_config.json'), '{}');
    return `tinker://model_1/sampler_weights/${checkpoint}`;
  }

  createSampler(modelPath: string): string {
    const id = `sampling_of_trainer_${++this.#made}`;
    this.#samplers.set(id, { sampler_id: id, base_model: 'sim', model_path: modelPath });
    return id;
  }
}

const trainedJson = { loss_fn_output_type: 'none', loss_fn_outputs: [], metrics: { 'loss:sum': 1.5 } };

/** The same as `tinker_public.ForwardBackwardOutput`. */
const trainedProto = ((): Buffer => {
  const loss = Buffer.alloc(8);
  loss.writeDoubleLE(1.5);
  const metric = Buffer.concat([Buffer.from('\x0a\x08loss:sum\x11'), loss]);
  return Buffer.concat([Buffer.from('\x0a\x04none\x1a'), Buffer.from([metric.length]), metric]);
})();

/** Starts a stub that is gone after the test. */
export async function startTrainerStub(t: TestContext, folder: string): Promise<TrainerStub> {
  const stub = new TrainerStub(folder);
  const server = createServer(async (request, response) => {
    const { method = '', url: target = '', headers } = request;
    stub.answer({ method, target, headers, body: await buffer(request) }, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  stub.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return stub;
}
