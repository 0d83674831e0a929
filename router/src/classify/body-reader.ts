import { asksMetadata, cacheUseOf } from '../engines/generation.ts';
import type { Exchange, RoutingKey } from '../exchange.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Health } from '../fleet/health.ts';
import { copiedTogether } from '../kit/copy-slices.ts';
import { percentDecoded } from '../kit/percent-decoded.ts';
import type { Needs } from '../placed-request.ts';
import { LARGE_SCAN_BYTES } from '../threads/sizes.ts';
import { after } from '../threads/worker-thread.ts';
import type { RequestBody } from '../wire/request-body.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { type BodyFacts, type BodyQuestion, BodyScan, nothingSaid } from './body-scan.ts';
import { readPromptIds } from './prompt-ids.ts';
import { type KeyPlace, groupOf, headerKeyText } from './routing-keys.ts';

const NOWHERE: readonly KeyPlace[] = [];
const isInBody = (place: KeyPlace): boolean => place.in === 'body';

/** SGLang 0.5.23 accepts this as "no model named", and its clients send it. */
const UNNAMED = 'default';
const named = (model: string): string => (model === UNNAMED ? '' : model);

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
    this.#read(x, { places, wantsContentKey: key === null, wantsPrompt }, (facts) => {
      x.key = x.key ?? facts.key ?? key;
      x.model ||= named(facts.model);
      x.prompt = facts.prompt;
      then();
    });
  }

  /** Reads only the model. Calls `then` as `readBody` does. */
  readModel(x: Exchange, then: () => void): void {
    this.#read(x, { places: NOWHERE, wantsContentKey: false, wantsPrompt: false }, ({ model }) => {
      x.model ||= named(model);
      then();
    });
  }

  #read(x: Exchange, question: BodyQuestion, take: (facts: BodyFacts) => void): void {
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

/** What the policies must know of requests. */
export interface NeededFacts {
  readonly needs: Needs;
  /** Whether the model of a request decides which policy chooses. */
  readonly needsModel: boolean;
  /** Whether the policy can choose for the session without the body. */
  knowsSession(x: Exchange): boolean;
}

const MODEL_PATH = '/v1/models/';

/** Reads what placement needs of a request: from its head, and if that is not enough, from its body. */
export class FactReader {
  readonly #needed: NeededFacts;
  readonly #reader: BodyReader;
  readonly #models: FleetModels | null;
  readonly #health: Pick<Health, 'firstChecks'> | null;

  /** @param models null: all workers serve the same models @param health null: the workers are known */
  constructor(
    needed: NeededFacts,
    reader: BodyReader,
    models: FleetModels | null = null,
    health: Pick<Health, 'firstChecks'> | null = null,
  ) {
    this.#needed = needed;
    this.#reader = reader;
    this.#models = models;
    this.#health = health;
  }

  /** Whether the head of each request is read for a key. */
  get readsKeys(): boolean {
    return this.#needed.needs !== 'nothing' || this.#needed.needsModel || this.#models?.areSeveral === true;
  }

  /** Calls `then` when all is known: at once, or after the first checks of engines, or when the body is complete. */
  prepare(x: Exchange, then: (x: Exchange) => void): void {
    if (x.target !== null) return then(x);
    const checks = this.#health?.firstChecks ?? null;
    if (checks === null) return this.#read(x, then);
    void checks.then(() => {
      if (x.outcome === null) this.#read(x, then);
    });
  }

  #read(x: Exchange, then: (x: Exchange) => void): void {
    x.readsState = asksMetadata(x.head.method, x.path);
    x.cacheUse = cacheUseOf(x.head.method, x.path);
    const { needs } = this.#needed;
    const models = this.#models?.areSeveral === true ? this.#models : null;
    const needsModel = this.#needed.needsModel || models !== null;
    if (!this.readsKeys) {
      // Set by a plugin.
      if (x.key !== null) x.group = groupOf(x);
      return then(x);
    }
    const isKeyKnown = this.#reader.readHead(x);
    // The content-length, or for a chunked body the bytes that have arrived.
    x.bodyBytes = Math.max(0, x.head.contentLength, x.body.bytes);
    const hasEnough = needs === 'headers' || needs === 'nothing' || (needs === 'key' && isKeyKnown);
    if (!needsModel && (hasEnough || (x.session !== '' && this.#needed.knowsSession(x)))) return then(x);
    if (!canWaitFor(x.head)) return then(x);
    x.body.whenComplete(() => {
      x.bodyBytes = x.body.bytes;
      const next = (): void => (models === null ? then(x) : findModel(x, models, then));
      if (needs === 'ids') this.#reader.readBody(x, true, () => readIds(x, next));
      else this.#reader.readBody(x, needs === 'prompt', next);
    });
  }

  /**
   * It is placed again. Workers that served the same models when it was prepared may have come to serve different ones, or the lists of
   * some are not known any more.
   */
  prepareAgain(x: Exchange, then: (x: Exchange) => void): void {
    const models = this.#models?.areSeveral === true ? this.#models : null;
    if (models === null || x.target !== null || !canWaitFor(x.head)) return then(x);
    if (x.isModelKnown) return findModel(x, models, then);
    x.body.whenComplete(() => this.#reader.readModel(x, () => findModel(x, models, then)));
  }
}

/**
 * Where workers serve different models: finds the model of a request whose body was read, and waits for lists that are not known. Engines
 * load adapters at run time, so workers are asked again before a model counts as unknown.
 */
function findModel(x: Exchange, models: FleetModels, then: (x: Exchange) => void): void {
  const first = models.firstLook();
  if (first !== null) return void first.then(() => findModel(x, models, then));
  if (!x.isModelKnown) {
    x.isModelKnown = true;
    x.model = named(x.model || modelOf(x.path));
    x.model = models.alias?.(x.model) ?? x.model;
  }
  if (x.model === '' || models.isServed(x.model)) return then(x);
  void models.lookFor(x.model).then(() => then(x));
}

function readIds(x: Exchange, then: () => void): void {
  x.promptIds = x.prompt && readPromptIds(x.body, x.prompt.field);
  then();
}

/** Whether to wait for the whole body. A chunked body that is not JSON may never end, or wait for the response. */
function canWaitFor(head: RequestHead): boolean {
  if (head.isChunked) return /[/+]json\b/i.test(head.get('content-type') ?? '');
  return head.contentLength <= MAX_LOOKED_BYTES;
}

/** The model that the path asks about, or ''. */
const modelOf = (path: string): string =>
  path.startsWith(MODEL_PATH) ? percentDecoded(path.slice(MODEL_PATH.length)) : '';
