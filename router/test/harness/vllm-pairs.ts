import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { type Engine, type EngineRequest, answer, startEngine } from './engine.ts';
import { chunk } from './message.ts';

/** What came to an engine of vLLM's, as half of a pair or alone. */
export interface VllmSeen {
  readonly request: EngineRequest;
  /** The body as it came. */
  readonly text: string;
  readonly body: Record<string, unknown>;
  /** `kv_transfer_params`, '' without any. */
  readonly params: string;
}

/** In place of a good answer; null: that. */
export type VllmInstead = (seen: VllmSeen) => 'nothing' | 'reset' | { status: number; body: string } | null;

export class VllmHalf {
  readonly seen: VllmSeen[] = [];
  /** Requests that a real engine would make nothing good of: there must be none. */
  readonly wrong: string[] = [];
  instead: VllmInstead = () => null;
  engine!: Engine;
  /** Of Mooncake prefill engines. */
  bootstrapPort = 0;
  engineId = '';
  /** Its data-parallel ranks. */
  ranks = 1;
  /** How often its bootstrap server was asked. */
  queries = 0;
}

/** Beyond 2^53, and with more digits than a double has. */
const BIG = '9007199254740993123';

/**
 * Prefill and decode engines of vLLM's. With `nixl` a prefill engine keeps what it did until its decode engine comes for it with the
 * parameters that it was given, byte for byte; with `mooncake` a decode engine waits until the prefill
 * engine of its transfer has done its part. Wrong bodies are refused and noted.
 */
export class VllmWorld {
  readonly prefill: VllmHalf[] = [];
  readonly decode: VllmHalf[] = [];
  readonly connector: 'nixl' | 'mooncake';
  readonly #t: TestContext;
  /** Parameters that nobody has come with yet. */
  readonly kept = new Set<string>();
  readonly #transfers = new Map<string, PromiseWithResolvers<void>>();
  #handed = 0;
  /** Further members of good answers. */
  says: (half: 'prefill' | 'decode', seen: VllmSeen) => string = () => '"usage":{"prompt_tokens":3}';

  constructor(t: TestContext, connector: 'nixl' | 'mooncake') {
    this.#t = t;
    this.connector = connector;
  }

  async add(role: 'prefill' | 'decode'): Promise<VllmHalf> {
    const half = new VllmHalf();
    const index = this[role].length;
    half.engine = await startEngine(this.#t, {
      onRequest: (request) => void this.#serve(role, half, index, request),
    });
    if (role === 'prefill' && this.connector === 'mooncake') await this.#openBootstrap(half, `engine-${index}`);
    this[role].push(half);
    return half;
  }

  async #openBootstrap(half: VllmHalf, engineId: string): Promise<void> {
    half.engineId = engineId;
    const server = createServer((asked, reply) => {
      half.queries++;
      const entries = idsOf(half).map((id, rank) => [rank, { engine_id: id, worker_addr: { 0: { 0: 'tcp://h:1' } } }]);
      reply.writeHead(asked.url === '/query' ? 200 : 404).end(JSON.stringify(Object.fromEntries(entries)));
    });
    await new Promise<void>((resolve) => server.listen(0, new URL(half.engine.url).hostname, resolve));
    this.#t.after(() => server.close());
    half.bootstrapPort = (server.address() as AddressInfo).port;
  }

  /** As the options have them. */
  get urls(): { prefill: string[]; decode: string[] } {
    const withPort = ({ engine, bootstrapPort }: VllmHalf) =>
      bootstrapPort === 0 ? [engine.url] : [engine.url, String(bootstrapPort)];
    return { prefill: this.prefill.flatMap(withPort), decode: this.decode.map(({ engine }) => engine.url) };
  }

  async #serve(role: 'prefill' | 'decode', half: VllmHalf, index: number, request: EngineRequest): Promise<void> {
    await request.whole;
    const text = Buffer.concat(request.wireBody.payload).toString();
    const seen = readSeen(request, text);
    const problem = seen === null ? 'no JSON' : this.#problemOf(role, seen);
    if (seen === null || problem !== '') {
      half.wrong.push(`${problem}: ${text}`);
      request.connection.write(answer(400, '{"error":"wrong body"}'));
      return;
    }
    half.seen.push(seen);
    const instead = half.instead(seen);
    if (instead === 'nothing') return;
    if (instead === 'reset') {
      // It may be what an engine does that has read nothing, and is then asked again.
      if (role === 'decode' && this.connector === 'nixl') this.kept.add(seen.params);
      return request.connection.reset();
    }
    if (instead !== null) {
      const fields = ['content-type: application/json', `x-engine: ${role}${index}`];
      request.connection.write(answer(instead.status, instead.body, fields));
      return;
    }
    const transfer = seen.params === '' ? undefined : (JSON.parse(seen.params) as { transfer_id?: string }).transfer_id;
    if (transfer !== undefined) await this.#transfer(role, transfer);
    const said = `{"id":"${role}${index}",${this.says(role, seen)},"kv_transfer_params":${this.#handOver(role)}}`;
    if (seen.body['stream'] !== true) return request.answerCompressed(said);
    request.beginStream();
    request.connection.write(`${chunk(`data: ${said}\n\n`)}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  }

  #handOver(role: 'prefill' | 'decode'): string {
    if (role === 'decode' || this.connector === 'mooncake') return 'null';
    const params = `{"do_remote_prefill": true,"remote_block_ids":[[${BIG}]] ,"remote_engine_id":"e","n":${this.#handed++}}`;
    this.kept.add(params);
    return params;
  }

  /** What is wrong with a body, '' for nothing. */
  #problemOf(role: 'prefill' | 'decode', { request, body, params }: VllmSeen): string {
    const isPair = params !== '' && params !== 'null';
    if (role === 'decode') {
      if (!isPair) return '';
      if (this.connector === 'nixl') return this.kept.delete(params) ? '' : 'parameters that nobody gave';
      return mooncakeProblem(this, JSON.parse(params) as Record<string, unknown>);
    }
    if (!isPair) return 'a prefill engine alone';
    const bounds = (request.target.endsWith('/inference/v1/generate') ? body['sampling_params'] : body) as Record<
      string,
      unknown
    >;
    const bound = request.target === '/v1/responses' ? 'max_output_tokens' : 'max_tokens';
    const later = bounds['max_completion_tokens'];
    if (bounds[bound] !== 1 || (later !== undefined && later !== 1)) return `${bound} is not 1`;
    if (body['stream'] !== false || 'stream_options' in body) return 'a stream';
    const { do_remote_decode: remoteDecode, do_remote_prefill: remotePrefill } = JSON.parse(params) as Record<
      string,
      unknown
    >;
    return remoteDecode === true && remotePrefill === false ? '' : 'keeps nothing';
  }

  /** A prefill engine answers when it has done its part, a decode engine only then can begin. */
  #transfer(role: 'prefill' | 'decode', transfer: string): Promise<void> {
    const done = this.#transfers.get(transfer) ?? Promise.withResolvers<void>();
    this.#transfers.set(transfer, done);
    if (role === 'prefill') done.resolve();
    return done.promise;
  }
}

const idsOf = ({ engineId, ranks }: VllmHalf): string[] =>
  Array.from({ length: ranks }, (_, rank) => (ranks === 1 ? engineId : `${engineId} rank ${rank}`));

function mooncakeProblem(world: VllmWorld, params: Record<string, unknown>): string {
  const home = world.prefill.find((half) => idsOf(half).includes(String(params['remote_engine_id'])));
  if (home === undefined) return 'an unknown engine';
  const address = `http://${new URL(home.engine.url).hostname}:${home.bootstrapPort}`;
  if (params['remote_bootstrap_addr'] !== address) return `not ${address}`;
  return params['do_remote_prefill'] === true && params['do_remote_decode'] === false ? '' : 'fetches nothing';
}

function readSeen(request: EngineRequest, text: string): VllmSeen | null {
  try {
    const body = JSON.parse(text) as Record<string, unknown>;
    // The last ones count, as for the engine; none of the tests' has a brace within.
    const params = [...text.matchAll(/"kv_transfer_params"\s*:\s*(\{[^}]*\}|null)/g)].at(-1)?.[1] ?? '';
    return { request, text, body, params };
  } catch {
    return null;
  }
}
