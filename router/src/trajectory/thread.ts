import { type MessagePort, type Transferable, Worker } from 'node:worker_threads';
import { entryFile } from '../config/entry-file.ts';
import { Slots } from '../kit/slots.ts';

/** What a thread can be asked for: each may block, as it has its thread to itself. */
export type Calls = Readonly<Record<string, (argument: never) => unknown>>;

export type Argument<F> = F extends (argument: infer A) => unknown ? A : never;
export type Answer<F> = F extends (argument: never) => infer R ? Awaited<R> : never;

/** `id` 0: it is not answered. */
export interface Call {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

interface Reply {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

interface Pending {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

/**
 * Asks a thread. Calls of one turn of the event loop travel together, as a message costs more than what it carries. They are
 * carried out in the order they were made; one that returns a promise does not hold up those after it.
 */
export class ThreadCaller<C extends Calls> {
  readonly #worker: Worker;
  /** By the number of the call, less one: 0 is the number of all that get no answer. */
  readonly #pending = new Slots<Pending>();
  #calls: Call[] = [];
  #transfer: Transferable[] = [];
  #willFlush = false;
  #isOver = false;

  /**
   * @param program the thread's module, as `entryFile` takes it
   * @param onDeath told once should the thread end by itself; all calls have failed by then
   * @param heapMb how large V8's heap of the thread may grow; left out: Node's default
   */
  constructor(program: string, workerData: unknown, onDeath: (error: Error) => void, heapMb?: number) {
    this.#worker = new Worker(entryFile(program), {
      workerData,
      ...(heapMb === undefined ? {} : { resourceLimits: { maxOldGenerationSizeMb: heapMb } }),
    });
    this.#worker.on('message', (replies: readonly Reply[]) => {
      for (const reply of replies) this.#settle(reply);
    });
    this.#worker.on('error', (error) => this.#end(error as Error, onDeath));
    this.#worker.on('exit', () => this.#end(new Error('the thread ended'), onDeath));
    // Last, as listening for messages counts as a reason to live.
    this.#worker.unref();
  }

  ask<N extends keyof C & string>(
    name: N,
    argument: Argument<C[N]>,
    transfer: readonly Transferable[] = [],
  ): Promise<Answer<C[N]>> {
    return new Promise((resolve, reject) => {
      if (this.#isOver) {
        reject(new Error('the thread has ended'));
        return;
      }
      this.#send({ id: this.await(resolve, reject), name, argument }, transfer);
    });
  }

  /** @returns the number of a call that is answered */
  protected await(resolve: (value: never) => void, reject: (error: Error) => void): number {
    const id = this.#pending.put({ resolve, reject }) + 1;
    // A process that waits for an answer, and for nothing else, waits.
    if (this.#pending.size === 1) this.#worker.ref();
    return id;
  }

  /** Without an answer: how it goes is the thread's own business. */
  tell<N extends keyof C & string>(name: N, argument: Argument<C[N]>, transfer: readonly Transferable[] = []): void {
    if (!this.#isOver) this.#send({ id: 0, name, argument }, transfer);
  }

  /** Everything asked before is answered, then the thread ends. */
  async close(): Promise<void> {
    await this.idle();
    this.#isOver = true;
    await this.#worker.terminate();
  }

  /** Resolves when everything asked before is answered. */
  protected async idle(): Promise<void> {
    while (this.#pending.size > 0 && !this.#isOver) await new Promise((resolve) => setImmediate(resolve));
  }

  /** The thread has ended: nothing reaches it. */
  protected get isOver(): boolean {
    return this.#isOver;
  }

  /** Sends what there is now, not at the end of this turn of the event loop. */
  protected flush(): void {
    const first = this.first();
    const calls = first === null ? this.#calls : [first, ...this.#calls];
    const transfer = this.#transfer;
    this.#calls = [];
    this.#transfer = [];
    this.#willFlush = false;
    if (!this.#isOver && calls.length > 0) this.#worker.postMessage(calls, transfer);
  }

  /** What stands before all calls of a message; null: nothing does. */
  protected first(): Call | null {
    return null;
  }

  /** Sends what there is at the end of this turn of the event loop. */
  protected flushSoon(): void {
    if (this.#willFlush) return;
    this.#willFlush = true;
    setImmediate(() => this.flush());
  }

  #send(call: Call, transfer: readonly Transferable[]): void {
    this.flushSoon();
    this.#calls.push(call);
    this.#transfer.push(...transfer);
  }

  #settle({ id, value, error }: Reply): void {
    const pending = this.#pending.take(id - 1);
    if (this.#pending.size === 0) this.#worker.unref();
    if (error === undefined) pending?.resolve(value as never);
    else pending?.reject(new Error(error));
  }

  #end(error: Error, onDeath: (error: Error) => void): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const { reject } of this.#pending.takeAll()) reject(error);
    onDeath(error);
  }
}

/** The thread's side: carries out calls as they come and answers those of one message together where it can. */
export function serveCalls(port: MessagePort, calls: Calls): void {
  port.on('message', (asked: readonly Call[]) => {
    const replies: Reply[] = [];
    for (const { id, name, argument } of asked) {
      const answer = (reply: Reply): void => {
        if (id !== 0) port.postMessage([reply], memoryIn(reply.value));
      };
      try {
        const value = calls[name]!(argument as never);
        if (value instanceof Promise) {
          value.then(
            (later: unknown) => answer({ id, value: later }),
            (error: unknown) => answer({ id, error: messageOf(error) }),
          );
        } else if (id !== 0) replies.push({ id, value });
      } catch (error) {
        if (id !== 0) replies.push({ id, error: messageOf(error) });
      }
    }
    if (replies.length > 0) {
      port.postMessage(
        replies,
        replies.flatMap(({ value }) => memoryIn(value)),
      );
    }
  });
}

/** What is less is copied: small buffers lie in a pool that can't be given away. */
const LARGE_BYTES = 1_048_576;

/** The memory of a changed body, which is given away: to copy one of megabytes takes milliseconds on either side. */
function memoryIn(value: unknown): Transferable[] {
  const body = typeof value === 'object' && value !== null && 'body' in value ? value.body : null;
  const isLarge = body instanceof Uint8Array && body.length >= LARGE_BYTES && body.length === body.buffer.byteLength;
  return isLarge ? [body.buffer as ArrayBuffer] : [];
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
