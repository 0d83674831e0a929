import type { TestContext } from 'node:test';
import { encode } from '@msgpack/msgpack';
import { Router, XPublisher } from 'zeromq';
import { freePort } from './free-port.ts';
import { until, within } from './within.ts';

/** An engine's side of KV cache events: publishes, keeps what it published, and gives it out again, as vLLM 0.32 does. */
export class KvPublisher {
  readonly #pub = new XPublisher({ linger: 0 });
  readonly #router = new Router({ linger: 0, sendHighWaterMark: 0 });
  readonly kept: { seq: number; payload: Uint8Array }[] = [];
  readonly #ts: number;
  replays = 0;
  #next = 0;

  private constructor(ts: number) {
    this.#ts = ts;
  }

  static async start(
    t: TestContext,
    at: { endpoint?: string; replay?: string; ts?: number } = {},
  ): Promise<KvPublisher> {
    const publisher = new KvPublisher(at.ts ?? 1_000);
    await bind(publisher.#pub, at.endpoint ?? (await freeEndpoint()));
    await bind(publisher.#router, at.replay ?? (await freeEndpoint()));
    void publisher.#answerReplays();
    t.after(() => publisher.stop());
    return publisher;
  }

  get endpoint(): string {
    return this.#pub.lastEndpoint!;
  }

  get replayEndpoint(): string {
    return this.#router.lastEndpoint!;
  }

  /** Until then nothing that is published reaches anybody. */
  async subscribed(): Promise<void> {
    await within(this.#pub.receive(), 'somebody subscribes');
  }

  /** A batch that says its own number: a lost one is kept, but not sent. */
  async publish(options: { isLost?: boolean; payload?: Uint8Array } = {}): Promise<void> {
    const seq = this.#next++;
    const payload = options.payload ?? numberedBatch(seq, this.#ts + seq);
    this.kept.push({ seq, payload });
    if (options.isLost !== true) await this.send(seq, payload);
  }

  /** A batch with these events, in the engines' own words. */
  async tell(...events: readonly object[]): Promise<void> {
    await this.publish({ payload: encode([this.#ts + this.#next, events, 0]) });
  }

  async send(seq: number, payload: Uint8Array): Promise<void> {
    await this.#pub.send(['', numberOf(seq), payload]);
  }

  async sendFrames(frames: (string | Uint8Array)[]): Promise<void> {
    await this.#pub.send(frames);
  }

  stop(): void {
    this.#pub.close();
    this.#router.close();
  }

  async #answerReplays(): Promise<void> {
    for await (const [client, , from] of this.#router) {
      this.replays++;
      const start = Number(from!.readBigUInt64BE());
      for (const { seq, payload } of this.kept) {
        if (seq >= start) await this.#router.send([client!, '', '', numberOf(seq), payload]);
      }
      await this.#router.send([client!, '', '', Buffer.alloc(8, 0xff), '']);
    }
  }
}

const freeEndpoint = async (): Promise<string> => `tcp://127.0.0.1:${await freePort()}`;

/** The address of a socket that was closed is free a moment later. */
function bind(socket: XPublisher | Router, endpoint: string): Promise<void> {
  return until(`${endpoint} is free`, () =>
    socket.bind(endpoint).then(
      () => true,
      () => false,
    ),
  );
}

export const numberOf = (seq: number): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(seq));
  return bytes;
};

export const numberedBatch = (seq: number, ts: number): Uint8Array =>
  encode([ts, [{ type: 'BlockRemoved', block_hashes: [seq], medium: 'GPU' }], 0]);
