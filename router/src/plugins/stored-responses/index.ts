import type { StateMap } from '../../choose/state.ts';
import { MAX_LOOKED_BYTES } from '../../classify/body-reader.ts';
import type { PreviousResponse } from '../../classify/previous-response.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { BodyThread } from '../../forward/body-calls.ts';
import { RouterError } from '../../kit/errors.ts';
import type { ExchangeView, StateKey } from '../../phases/exchange-view.ts';
import { type Plugin, Refused } from '../../plugin.ts';
import { responseIdReader } from './response-id.ts';

const PATH = '/v1/responses';

interface Needed {
  readonly id: string;
  /** URL of the worker that has it. */
  readonly url: string;
}

/**
 * Sends requests that need a stored response (`previous_response_id`, and the paths below `/v1/responses/{id}`) to the engine that has it:
 * vLLM and SGLang keep responses in the memory of one engine. The ids are learned from responses. A request with an id that is not
 * known goes to the worker of the policy.
 */
export function storedResponses(fleet: Fleet, thread: BodyThread, state: StateMap): Plugin {
  const homes = new ResponseHomes(state);
  const needed: StateKey<Needed> = {};
  const unstored: StateKey<true> = {};

  const need = (x: ExchangeView, id: string | undefined): boolean => {
    const url = id === undefined ? undefined : homes.get(id);
    if (url !== undefined) x.setState(needed, { id: id!, url });
    return url !== undefined;
  };

  return {
    name: 'stored-responses',
    pathPrefix: PATH,
    appliesTo: ({ path }) => path === PATH || path.startsWith(`${PATH}/`),
    async classify(x) {
      if (need(x, x.path.split('/')[3]) || x.head.method !== 'POST') return;
      const { id, isStored } = await bodyOf(x, thread);
      if (!isStored) x.setState(unstored, true);
      // The id of the response is read.
      else if (x.path === PATH) x.refuseCompression();
      need(x, id ?? undefined);
    },
    choose(x, workers) {
      const home = x.state(needed);
      if (home === null) return workers;
      const engineUrl = home.url.replace(/@\d+$/, '');
      const ofEngine = workers.filter((worker) => worker.engineUrl === engineUrl);
      // The API server of an engine has the responses of all its ranks; the KV cache is at the rank.
      const sameRank = ofEngine.filter(({ url }) => url === home.url);
      const able = sameRank.length > 0 ? sameRank : ofEngine;
      if (able.length === 0) throw new Refused(unavailable(home, fleet, engineUrl));
      // Of a pair, the decode engine sends the response and stores it.
      return [...workers.filter((worker) => worker.role === 'prefill' && !able.includes(worker)), ...able];
    },
    observeResponse(x, head) {
      const isNew = x.path === PATH && x.head.method === 'POST' && head.status < 300 && x.state(unstored) === null;
      const { worker } = x;
      if (!isNew || worker === null || head.get('content-encoding') !== undefined) return null;
      return responseIdReader(head.isEventStream, (id) => homes.set(id, worker.url));
    },
  };
}

/** @returns no id for a body that is too large to be read */
const bodyOf = ({ head, body }: ExchangeView, thread: BodyThread): Promise<PreviousResponse> =>
  new Promise((resolve, reject) => {
    const nothing: PreviousResponse = { id: null, isStored: true };
    if (head.contentLength > MAX_LOOKED_BYTES) return resolve(nothing);
    body.whenComplete(({ bytes }) => {
      if (bytes === 0 || bytes > MAX_LOOKED_BYTES) resolve(nothing);
      else
        body.whenJoined((all) => void Promise.resolve(thread.runOnCopy('previousResponse', all)).then(resolve, reject));
    });
  });

function unavailable({ id }: Needed, fleet: Fleet, engineUrl: string): RouterError {
  if (fleet.workers.some((worker) => worker.engineUrl === engineUrl)) {
    return new RouterError(
      'no_available_workers',
      `The engine that stored the response ${id} is not available now. Retry, or send the whole conversation as input, without previous_response_id.`,
    );
  }
  return new RouterError(
    'response_not_found',
    `The engine that stored the response ${id} has left the fleet. Send the whole conversation as input, without previous_response_id.`,
  );
}

/** Beyond this number, or this many characters of ids, the least recently used responses are forgotten. */
const MAX_RESPONSES = 100_000;
const MAX_CHARS = 8_388_608;
/** Longer ids are not remembered; those of engines have 37 characters. */
const MAX_ID_CHARS = 256;

/** The URL of the worker that stored each response, kept over restarts in `state`. */
export class ResponseHomes {
  /** Least recently used first. */
  readonly #urls = new Map<string, string>();
  readonly #state: StateMap;
  readonly #limits: { readonly count: number; readonly chars: number };
  #chars = 0;

  constructor(state: StateMap, limits = { count: MAX_RESPONSES, chars: MAX_CHARS }) {
    this.#state = state;
    this.#limits = limits;
    for (const [id, url] of state.entries()) this.#put(id, url);
    this.#trim();
  }

  get size(): number {
    return this.#urls.size;
  }

  get(id: string): string | undefined {
    const url = this.#urls.get(id);
    if (url === undefined) return undefined;
    this.#urls.delete(id);
    this.#urls.set(id, url);
    return url;
  }

  set(id: string, url: string): void {
    if (id.length > MAX_ID_CHARS) return;
    this.#forget(id);
    this.#put(id, url);
    this.#state.set(id, url);
    this.#trim();
  }

  #put(id: string, url: string): void {
    this.#urls.set(id, url);
    this.#chars += id.length;
  }

  #forget(id: string): void {
    if (this.#urls.delete(id)) this.#chars -= id.length;
  }

  #trim(): void {
    for (const id of this.#urls.keys()) {
      if (this.#urls.size <= this.#limits.count && this.#chars <= this.#limits.chars) return;
      this.#forget(id);
      this.#state.delete(id);
    }
  }
}
