import { existsSync } from 'node:fs';
import { type Transferable, Worker } from 'node:worker_threads';
import { bufferOf } from '../kit/bytes.ts';
import { copied } from '../kit/copy-slices.ts';
import { type Call, type Calls, type Reply, buffersIn, memoryIn, sendEach } from './serve-calls.ts';
import { LARGE_BYTES } from './sizes.ts';

export type Argument<F> = F extends (argument: infer A) => unknown ? A : never;
export type Answer<F> = F extends (...args: never[]) => infer R ? Awaited<R> : never;

export interface ThreadOptions<C extends Calls> {
  readonly workerData?: unknown;
  /** V8's heap limit of the thread. */
  readonly heapMb?: number;
  /** Calls that `run` runs on the caller's thread for small arguments. */
  readonly here?: Partial<C>;
  /** The size of arguments in bytes above which `run` uses the thread. */
  readonly limits?: Partial<Record<keyof C, number>>;
  /**
   * For a thread with state, which starts at once. Called when the thread ends by itself, after its calls have failed; only `restart`
   * starts it again. Without this option the first call, also after an end, starts the thread.
   */
  readonly onDeath?: (error: Error) => void;
}

interface Sending {
  readonly call: Call;
  readonly transfer: readonly Transferable[];
}

/** The thread of a call has ended. */
export class ThreadEnded extends Error {}

interface Pending {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

/**
 * Calls functions on a worker thread, in order; a call that returns a promise does not delay later ones. Calls of one turn of the event
 * loop are sent in one message, because a message costs more than its content.
 */
export class WorkerThread<C extends Calls> {
  readonly #program: string;
  readonly #options: ThreadOptions<C>;
  /** By the id of the call, from 1 on. */
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  starts = 0;
  #worker: Worker | null = null;
  #calls: Sending[] = [];
  #isOver = false;
  #isClosed = false;

  /** @param program the thread's module, below `src`, without extension: `forward/bodies-in-thread` */
  constructor(program: string, options: ThreadOptions<C> = {}) {
    this.#program = program;
    this.#options = options;
    if (options.onDeath !== undefined) this.#worker = this.#start();
  }

  /**
   * Runs a call with small buffers on this thread, others on the worker thread. Large buffers are transferred: the caller must not use
   * them any more.
   */
  run<N extends keyof C & string>(name: N, ...args: Parameters<C[N]>): Answer<C[N]> | Promise<Answer<C[N]>> {
    const here = this.#hereFor(name, args);
    if (here !== null) return here(...(args as never[])) as Answer<C[N]>;
    // A part of a larger memory is copied, because all of the memory would be sent.
    const own = args.map((arg: unknown) =>
      arg instanceof Uint8Array && arg.length < arg.buffer.byteLength ? new Uint8Array(arg) : arg,
    );
    return this.#ask<N>(name, own, own.flatMap(memoryIn)).then(withBuffers);
  }

  /** As `run`, but the thread gets a copy of the body, made in several turns of the event loop. */
  runOnCopy<N extends keyof C & string>(name: N, ...args: Parameters<C[N]>): Answer<C[N]> | Promise<Answer<C[N]>> {
    if (this.#hereFor(name, args) !== null) return this.run(name, ...args);
    const [body, ...rest] = args as unknown as [Uint8Array, ...unknown[]];
    return copied(body).then((copy) => this.run(name, ...([copy, ...rest] as unknown as Parameters<C[N]>)));
  }

  /** null: the call runs on the worker thread. */
  #hereFor<N extends keyof C & string>(name: N, args: readonly unknown[]): C[N] | null {
    const here = this.#options.here?.[name];
    if (here === undefined) return null;
    let bytes = 0;
    for (const arg of args) for (const { length } of buffersIn(arg)) bytes += length;
    return bytes <= (this.#options.limits?.[name] ?? LARGE_BYTES) ? here : null;
  }

  ask<N extends keyof C & string>(
    name: N,
    argument: Argument<C[N]>,
    transfer: readonly Transferable[] = [],
  ): Promise<Answer<C[N]>> {
    return this.#ask<N>(name, [argument], transfer);
  }

  #ask<N extends keyof C & string>(
    name: N,
    args: readonly unknown[],
    transfer: readonly Transferable[],
  ): Promise<Answer<C[N]>> {
    return new Promise((resolve, reject) => {
      if (this.#isOver) {
        reject(new ThreadEnded('the thread has ended'));
        return;
      }
      this.#worker ??= this.#start();
      const id = ++this.#lastId;
      this.#pending.set(id, { resolve, reject });
      // A pending reply keeps the process alive.
      if (this.#pending.size === 1) this.#worker.ref();
      this.#send({ id, name, args }, transfer);
    });
  }

  /** A call without a reply. The thread must have started. */
  tell<N extends keyof C & string>(name: N, argument: Argument<C[N]>, transfer: readonly Transferable[] = []): void {
    if (!this.#isOver) this.#send({ id: 0, name, args: [argument] }, transfer);
  }

  /** Ends the thread once all earlier calls have their replies. */
  async close(): Promise<void> {
    await this.idle();
    this.#isOver = true;
    this.#isClosed = true;
    const worker = this.#worker;
    this.#worker = null;
    await worker?.terminate();
  }

  /** Starts a thread with state again after it ended. Its state is lost. Throws if the system has no thread now: it stays ended. */
  restart(): void {
    if (!this.#isOver || this.#isClosed) return;
    this.#worker = this.#start();
    this.#isOver = false;
  }

  /** Ends the thread at once: its calls fail with the error. */
  async abort(error: Error): Promise<void> {
    const worker = this.#worker;
    if (worker === null) return;
    this.#end(worker, error);
    await worker.terminate();
  }

  /** Resolves when all earlier calls have their replies. */
  protected async idle(): Promise<void> {
    while (this.#pending.size > 0 && !this.#isOver) await new Promise((resolve) => setImmediate(resolve));
  }

  /** The thread has ended. */
  protected get isOver(): boolean {
    return this.#isOver;
  }

  #send(call: Call, transfer: readonly Transferable[]): void {
    this.#calls.push({ call, transfer });
    if (this.#calls.length === 1) setImmediate(() => this.#flush());
  }

  #flush(): void {
    const worker = this.#worker;
    const calls = this.#calls;
    this.#calls = [];
    if (calls.length === 0 || worker === null) return;
    const post = (some: readonly Sending[]): void =>
      worker.postMessage(
        some.map(({ call }) => call),
        some.flatMap(({ transfer }) => transfer),
      );
    sendEach(calls, post, ({ call: { id, name } }, error) => {
      if (id === 0) throw new Error(`${name}: ${error}`);
      this.#settle({ id, error });
    });
  }

  #start(): Worker {
    const { workerData, heapMb } = this.#options;
    this.starts++;
    const worker = new Worker(entryFile(this.#program), {
      workerData,
      ...(heapMb === undefined ? {} : { resourceLimits: { maxOldGenerationSizeMb: heapMb } }),
    });
    worker.on('message', (replies: readonly Reply[]) => {
      for (const reply of replies) this.#settle(reply);
    });
    // The calls of these replies are not known.
    worker.on('messageerror', (error) => this.#fail(error));
    worker.on('error', (error) => this.#end(worker, new ThreadEnded((error as Error).message, { cause: error })));
    worker.on('exit', () => this.#end(worker, new ThreadEnded('the thread ended')));
    // Last, because a message listener keeps the process alive.
    worker.unref();
    return worker;
  }

  #settle({ id, value, error }: Reply): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#worker?.unref();
    if (error === undefined) pending?.resolve(value as never);
    else pending?.reject(new Error(error));
  }

  #end(worker: Worker, error: Error): void {
    if (worker !== this.#worker) return;
    this.#worker = null;
    this.#calls = [];
    this.#isOver = this.#options.onDeath !== undefined;
    this.#fail(error);
    this.#options.onDeath?.(error);
  }

  #fail(error: Error): void {
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    this.#worker?.unref();
    for (const { reject } of pending) reject(error);
  }
}

/** Buffers arrive as plain Uint8Arrays. */
function withBuffers<T>(value: T): T {
  if (value instanceof Uint8Array) return bufferOf(value) as T;
  if (typeof value !== 'object' || value === null) return value;
  for (const [name, member] of Object.entries(value)) {
    if (member instanceof Uint8Array) (value as Record<string, unknown>)[name] = bufferOf(member);
  }
  return value;
}

/** `then` is called at once if the value is no promise. */
export const after = <T, R>(value: T | Promise<T>, then: (value: T) => R | Promise<R>): R | Promise<R> =>
  value instanceof Promise ? value.then(then) : then(value);

/** `.ts` in the repository, `.js` in the built package, whose shared code is one folder below `dist` as this file is one below `src`. */
function entryFile(path: string): URL {
  const source = new URL(`../${path}.ts`, import.meta.url);
  return existsSync(source) ? source : new URL(`../${path}.js`, import.meta.url);
}
