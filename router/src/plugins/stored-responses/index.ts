import type { StateMap } from '../../choose/state.ts';
import { MAX_LOOKED_BYTES } from '../../classify/body-reader.ts';
import type { PreviousResponse } from '../../classify/previous-response.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { BodyThread } from '../../forward/body-calls.ts';
import { RouterError } from '../../kit/errors.ts';
import type { ExchangeView, StateKey } from '../../phases/exchange-view.ts';
import { type Plugin, Refused } from '../../plugin.ts';
import { ResponseHomes } from './response-homes.ts';
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
