import { PassingSink } from '../wire/passing-sink.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { type ResponseHead, ownHead } from '../wire/response-head.ts';
import type { Sink } from '../wire/sink.ts';

/** Browsers may cache the response to a preflight for this time. */
const MAX_AGE_SECS = 600;
const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE';
/** Response fields that pages may read, in addition to those that the Fetch standard always allows. */
const EXPOSED = 'x-request-id, x-turnout-error, retry-after';
/** The characters of a list of header names; any other list is not repeated in the response. */
const NAMES = /^[\w\-, ]{1,1024}$/;

export class Cors {
  readonly #origins: ReadonlySet<string>;
  readonly #isForAll: boolean;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins.map((origin) => origin.toLowerCase()));
    this.#isForAll = this.#origins.has('*');
  }

  /** @returns the sink that adds the CORS fields; null: the request was a preflight, and has its response */
  sinkFor(head: RequestHead, sink: Sink): Sink | null {
    const fields = this.#fields(head.get('origin'));
    const isPreflight = head.method === 'OPTIONS' && head.get('access-control-request-method') !== undefined;
    if (!isPreflight || !fields.startsWith('access')) return new CorsSink(sink, fields);
    answerPreflight(sink, fields, head.get('access-control-request-headers') ?? '');
    return null;
  }

  #fields(origin: string | undefined): string {
    const expose = `access-control-expose-headers: ${EXPOSED}\r\n`;
    if (this.#isForAll) return `access-control-allow-origin: *\r\n${expose}`;
    // Responses differ by origin, so caches must know, also for requests without one.
    if (origin === undefined || !this.#origins.has(origin.toLowerCase())) return 'vary: origin\r\n';
    return `access-control-allow-origin: ${origin}\r\nvary: origin\r\n${expose}`;
  }
}

function answerPreflight(sink: Sink, fields: string, names: string): void {
  const allowed = NAMES.test(names) ? `access-control-allow-headers: ${names}\r\n` : '';
  const more = `access-control-allow-methods: ${METHODS}\r\n${allowed}access-control-max-age: ${MAX_AGE_SECS}\r\n`;
  const head = ownHead(204, 'No Content', fields + more, 0);
  // A 204 has no Content-Length (RFC 9110 section 8.6).
  head.drop('content-length');
  sink.head(head);
  sink.end();
}

/** Replaces the CORS fields of the engine's response by the router's. */
class CorsSink extends PassingSink {
  readonly #fields: string;

  constructor(inner: Sink, fields: string) {
    super(inner);
    this.#fields = fields;
  }

  override head(head: ResponseHead): void {
    for (const what of ['origin', 'credentials']) head.drop(`access-control-allow-${what}`);
    head.drop('access-control-expose-headers');
    head.add(this.#fields);
    super.head(head);
  }
}
