import type { ReadableStreamDefaultController, UnderlyingSource } from 'node:stream/web';
import type { ExchangeRow, ExchangeRows } from './exchange-rows.ts';

/** Rows that wait for a slow reader; further ones are dropped and counted. JSON of so many is made within 5 ms. */
const MAX_WAITING = 500;
/** Rows are sent together at most this often, because each write costs more than its rows. */
const SEND_EVERY_MS = 50;
/** A comment is sent this often, so that proxies keep the connection and a reader that is gone is noticed. */
const KEEP_ALIVE_MS = 15_000;

/**
 * Streams the rows of exchanges as they end, as server-sent events. The event `lost` has the number of rows that a slow reader did not
 * get.
 */
export class Tap implements UnderlyingSource<Uint8Array> {
  readonly #rows: ExchangeRows;
  readonly #isWanted: (row: ExchangeRow) => boolean;
  readonly #encoder = new TextEncoder();
  #waiting: ExchangeRow[] = [];
  #lost = 0;
  #isReaderReady = false;
  #timer: NodeJS.Timeout | null = null;
  #stream: ReadableStreamDefaultController<Uint8Array> | null = null;
  #stop = (): void => {};

  constructor(rows: ExchangeRows, isWanted: (row: ExchangeRow) => boolean) {
    this.#rows = rows;
    this.#isWanted = isWanted;
  }

  start(stream: ReadableStreamDefaultController<Uint8Array>): void {
    this.#stream = stream;
    const stopListening = this.#rows.listen((row) => this.#take(row));
    const keepAlive = setInterval(() => {
      if (this.#isReaderReady && this.#timer === null) this.#put(': keep-alive\n\n');
    }, KEEP_ALIVE_MS);
    this.#stop = () => {
      stopListening();
      clearInterval(keepAlive);
      if (this.#timer !== null) clearTimeout(this.#timer);
    };
    // The head of the response is sent with the first bytes.
    this.#put(': listening\n\n');
  }

  pull(): void {
    this.#isReaderReady = true;
    this.#sendSoon();
  }

  cancel(): void {
    this.#stop();
  }

  #take(row: ExchangeRow): void {
    if (!this.#isWanted(row)) return;
    if (this.#waiting.length < MAX_WAITING) this.#waiting.push(row);
    else this.#lost++;
    this.#sendSoon();
  }

  #sendSoon(): void {
    if (this.#isReaderReady && this.#waiting.length > 0) this.#timer ??= setTimeout(this.#send, SEND_EVERY_MS);
  }

  readonly #send = (): void => {
    this.#timer = null;
    const events = this.#waiting.map((row) => `data: ${JSON.stringify(row)}\n\n`);
    if (this.#lost > 0) events.push(`event: lost\ndata: {"lost":${this.#lost}}\n\n`);
    this.#waiting = [];
    this.#lost = 0;
    this.#put(events.join(''));
  };

  #put(text: string): void {
    this.#isReaderReady = false;
    this.#stream!.enqueue(this.#encoder.encode(text));
  }
}
