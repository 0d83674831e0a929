import { type Endpoint, UpstreamConnection } from '../wire/upstream-pool.ts';

/** A connection that is lost sooner is opened again later: something between the router and the engine closes idle connections. */
const STEADY_MS = 10_000;
const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 60_000;
const CONNECT_TIMEOUT_MS = 5_000;
/** From this time without an answer on the system asks whether the other side still exists. */
const KEEP_ALIVE_MS = 5_000;

/**
 * Notices at once that the process of an engine ends: a connection on which nothing is sent is closed by the system then. Engines do not
 * close it otherwise: uvicorn (0.54) counts idle time from the first response on. As long as it is open, the engine is the same process.
 */
export class ProcessWatch {
  readonly #onLost: () => void;
  #connection: UpstreamConnection | null = null;
  #opening: Promise<void> | null = null;
  #openedMs = 0;
  #delayMs = 0;
  #timer: NodeJS.Timeout | null = null;
  /** A connection was lost, and none was open since. */
  #hasGap = false;

  /** @param onLost the connection was lost, or could be opened again after a time in which the process was not watched */
  constructor(onLost: () => void) {
    this.#onLost = onLost;
  }

  get isOpen(): boolean {
    return this.#connection?.isUsable === true && this.#connection.isConnected;
  }

  /**
   * Resolves when the connection is open or can't be opened now.
   * @param isAtOnce also if the last one was lost soon: what follows relies on the process, and is rare
   */
  open(endpoint: Endpoint, isAtOnce = false): Promise<void> {
    if (this.isOpen || (this.#timer !== null && !isAtOnce)) return Promise.resolve();
    this.#opening ??= this.#open(endpoint).finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  close(): void {
    this.#stopTimer();
    const connection = this.#connection;
    this.#connection = null;
    connection?.destroy();
  }

  #open(endpoint: Endpoint): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const connection = new UpstreamConnection(endpoint, CONNECT_TIMEOUT_MS, () => {
      resolve();
      if (this.#connection !== connection) return;
      this.#connection = null;
      if (connection.isConnected) this.#lost(endpoint);
    });
    this.#connection = connection;
    const { socket } = connection;
    socket.unref();
    socket.once(endpoint.isTls ? 'secureConnect' : 'connect', () => {
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      this.#openedMs = performance.now();
      this.#stopTimer();
      const hadGap = this.#hasGap;
      this.#hasGap = false;
      if (hadGap) this.#onLost();
      resolve();
    });
    return promise;
  }

  #lost(endpoint: Endpoint): void {
    const isSteady = performance.now() - this.#openedMs >= STEADY_MS;
    this.#delayMs = isSteady ? 0 : Math.min(MAX_DELAY_MS, Math.max(FIRST_DELAY_MS, 2 * this.#delayMs));
    this.#hasGap = true;
    if (!isSteady) {
      this.#timer = setTimeout(() => {
        this.#timer = null;
        void this.open(endpoint).then(() => {
          if (!this.isOpen) this.#onLost();
        });
      }, this.#delayMs).unref();
    }
    this.#onLost();
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
