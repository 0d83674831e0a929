import type { Exchange, RoutingKey } from '../exchange.ts';
import { copiedTogether } from '../kit/copy-slices.ts';
import { LARGE_SCAN_BYTES } from '../threads/sizes.ts';
import { after } from '../threads/worker-thread.ts';
import type { RequestBody } from '../wire/request-body.ts';
import { type BodyFacts, type BodyQuestion, BodyScan, nothingSaid } from './body-scan.ts';
import { type KeyPlace, groupOf, headerKeyText } from './routing-keys.ts';

const NOWHERE: readonly KeyPlace[] = [];
const isInBody = (place: KeyPlace): boolean => place.in === 'body';

/** Reads a body, perhaps in a worker thread. Its bytes are valid during the call; a large body is given away. */
type Scan = (body: Buffer, question: BodyQuestion) => BodyFacts | Promise<BodyFacts>;

const bodyScan = new BodyScan();
const scanHere: Scan = (body, question) => bodyScan.scan(body, question);

/** Larger bodies are not read: no prompt is that long. */
export const MAX_LOOKED_BYTES = 16_777_216;

/** Reads what policies need: the routing key, the group, the prompt, the model. */
export class BodyReader {
  #places: readonly KeyPlace[] = [];
  #bodyPlaces: readonly KeyPlace[] = [];
  /** Up to this index, header places come before all body places. */
  #headFirst = 0;
  readonly #scan: Scan;
  #scratch: Buffer | null = null;
  /** Resolves when earlier large bodies are read: one is copied at a time. */
  #lastLarge: Promise<unknown> = Promise.resolve();

  constructor(places: readonly KeyPlace[], scan: Scan = scanHere) {
    this.#scan = scan;
    this.setPlaces(places);
  }

  setPlaces(places: readonly KeyPlace[]): void {
    this.#places = places;
    this.#bodyPlaces = places.filter(isInBody);
    const firstInBody = places.findIndex(isInBody);
    this.#headFirst = firstInBody < 0 ? places.length : firstInBody;
  }

  /** Reads the head. @returns true: the key is found and no field of the body could come before it. */
  readHead(x: Exchange): boolean {
    if (x.head.hasPrefix('x-turnout-g')) x.group = groupOf(x);
    // A plugin has set it.
    if (x.key !== null) return true;
    for (let i = 0; i < this.#headFirst; i++) {
      if ((x.key = headerKey(x, this.#places[i]!)) !== null) return true;
    }
    // An empty body has no key.
    if (x.body.isComplete && x.body.bytes === 0) x.key = this.#laterHeaderKey(x).key;
    return x.key !== null;
  }

  /**
   * Reads the whole body (after `readHead`): the key if there is none yet, the model, and the prompt if wanted. Calls
   * `then` when done: at once, unless the body is large.
   */
  readBody(x: Exchange, wantsPrompt: boolean, then: () => void): void {
    const { key, bodyPlaces: places } = x.key === null ? this.#laterHeaderKey(x) : { key: x.key, bodyPlaces: NOWHERE };
    const question: BodyQuestion = { places, wantsContentKey: key === null, wantsPrompt };
    const take = (facts: BodyFacts): void => {
      x.key = x.key ?? facts.key ?? key;
      x.model ||= facts.model;
      x.prompt = facts.prompt;
      then();
    };
    const { bytes } = x.body;
    if (bytes > MAX_LOOKED_BYTES) take(nothingSaid);
    else if (bytes <= LARGE_SCAN_BYTES) void after(this.#scan(this.#view(x.body), question), take);
    else {
      const facts = this.#lastLarge.then(() => this.#readLarge(x, question));
      this.#lastLarge = facts;
      void facts.then((found) => {
        if (x.outcome === null) take(found);
      });
    }
  }

  async #readLarge(x: Exchange, question: BodyQuestion): Promise<BodyFacts> {
    try {
      const copy = await copiedTogether(x.body.pieces, x.body.bytes, () => x.outcome === null);
      return copy === null ? nothingSaid : await this.#scan(copy, question);
    } catch {
      // The thread has ended.
      return nothingSaid;
    }
  }

  /** The first header key after the body places, and the body places before it. */
  #laterHeaderKey(x: Exchange): { key: RoutingKey | null; bodyPlaces: readonly KeyPlace[] } {
    for (let i = this.#headFirst; i < this.#places.length; i++) {
      const place = this.#places[i]!;
      const key = place.in === 'header' ? headerKey(x, place) : null;
      if (key !== null) return { key, bodyPlaces: this.#places.slice(this.#headFirst, i).filter(isInBody) };
    }
    return { key: null, bodyPlaces: this.#bodyPlaces };
  }

  /** The body in one piece, valid until the next call. */
  #view(body: RequestBody): Buffer {
    if (body.pieces.length < 2) return body.join();
    this.#scratch ??= Buffer.allocUnsafeSlow(LARGE_SCAN_BYTES);
    let at = 0;
    for (const piece of body.pieces) at += piece.copy(this.#scratch, at);
    return this.#scratch.subarray(0, at);
  }
}

function headerKey(x: Exchange, { kind, name }: KeyPlace): RoutingKey | null {
  // An id that the router generated says nothing about the client.
  if (name === 'x-request-id' && x.isRequestIdOurs) return null;
  const value = x.head.get(name);
  return value === undefined || value === '' ? null : { kind, value: headerKeyText(value), source: `header:${name}` };
}
