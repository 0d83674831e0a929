import type { TestContext } from 'node:test';
import { type Engine, type EngineRequest, startEngine } from '../harness/engine.ts';
import { type WireHead, chunk } from '../harness/message.ts';

/** What an engine was asked. */
export interface Recorded {
  readonly head: WireHead;
  /** A character for each byte. */
  readonly body: string;
}

/** All that both routers may read in answers: SGLang's log probabilities, what vLLM's prefill engines hand on. */
const SAID = JSON.stringify({
  text: 't',
  meta_info: { input_token_logprobs: [] },
  choices: [],
  kv_transfer_params: {
    do_remote_decode: false,
    do_remote_prefill: true,
    remote_engine_id: 'e',
    remote_block_ids: [1, 2],
    remote_host: '127.0.0.1',
    remote_port: 5600,
  },
});

const IS_HALF = /"(?:bootstrap_room|kv_transfer_params)":/;

/** An engine that says yes to everything and writes down what it was asked to do. */
export class Recorder {
  readonly engine: Engine;
  /** Halves of pairs that came whole. */
  #halves = 0;
  #taken = 0;
  #wake: (() => void)[] = [];

  constructor(engine: Engine) {
    this.engine = engine;
  }

  /** Answers. A half of a pair waits until the engine `first` has the other one: all is recorded when the client has its answer. */
  async serve(asked: EngineRequest, first: Recorder | null): Promise<void> {
    // Questions of the routers' own: how it is, what it serves.
    if (asked.method === 'GET') {
      this.engine.requests.splice(this.engine.requests.indexOf(asked), 1);
      asked.answer('{"status":"ok","model_path":"m","served_model_name":"m","data":[{"id":"m","object":"model"}]}');
      return;
    }
    await asked.whole;
    const body = Buffer.concat(asked.wireBody.payload).toString('latin1');
    if (IS_HALF.test(body)) {
      this.#halves++;
      for (const wake of this.#wake.splice(0)) wake();
      await first?.untilHalves(this.#halves);
    }
    if (asked.target.includes('rerank')) return asked.answer('[{"index":0,"score":1}]');
    if (!/"stream":\s*true/.test(body)) return asked.answer(SAID);
    asked.beginStream();
    asked.connection.write(`${chunk(`data: ${SAID}\n\n`)}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  }

  async untilHalves(count: number): Promise<void> {
    while (this.#halves < count) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake.push(resolve);
      await promise;
    }
  }

  /** What was asked since the last time. */
  take(): Recorded[] {
    const fresh = this.engine.requests.slice(this.#taken);
    this.#taken = this.engine.requests.length;
    return fresh.map(({ head, wireBody }) => ({ head, body: Buffer.concat(wireBody.payload).toString('latin1') }));
  }
}

/** @param first the prefill engine of this decode engine */
export async function startRecorder(t: TestContext, first: Recorder | null = null): Promise<Recorder> {
  const engine = await startEngine(t);
  const recorder = new Recorder(engine);
  engine.onRequest = (asked) => void recorder.serve(asked, first);
  return recorder;
}
