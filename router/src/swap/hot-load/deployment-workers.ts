import { MAX_LOOKED_BYTES } from '../../classify/body-reader.ts';
import { RouterError } from '../../kit/errors.ts';
import type { ExchangeView, StateKey } from '../../phases/exchange-view.ts';
import { type Plugin, Refused } from '../../plugin.ts';
import { namesIn } from '../../plugins/fireworks/names.ts';
import type { ResourceNames } from '../../plugins/fireworks/resource-names.ts';
import type { DeploymentList } from '../deployment-list.ts';
import type { Deployment } from '../deployment-list.ts';

/** The body of a slow client is waited for as long as the listener allows (`--client-body-timeout-secs`). */
const MAX_WAIT_MS = 2 ** 31 - 1;

/** Requests that name a deployment go to its workers. Only needed where a deployment does not have all workers. */
export function deploymentWorkers(deployments: DeploymentList): Plugin {
  const chosen: StateKey<Deployment> = {};
  const settle = (x: ExchangeView, names: ResourceNames): void => {
    if (names.deployment === '' && names.model === '') return;
    const found = deployments.find(names);
    if (found === null) throw new Refused(new RouterError('model_not_found', deployments.noneFor(names)));
    x.setState(chosen, found);
  };
  return {
    name: 'deployment-workers',
    timeoutMs: MAX_WAIT_MS,
    appliesTo: ({ isGeneration }) => isGeneration,
    classify(x) {
      const deployment = x.head.get('fireworks-deployment') ?? '';
      const model = x.head.get('fireworks-model') ?? '';
      if (deployment !== '' || !mayHaveNames(x)) return settle(x, { deployment, model });
      return new Promise<Buffer>((resolve) => x.body.whenJoined(resolve)).then((body) => {
        const names = namesIn(body);
        settle(x, { deployment: names?.deployment ?? '', model: model || (names?.model ?? '') });
      });
    },
    choose(x, workers) {
      const own = x.state(chosen)?.workers();
      return own === undefined ? workers : workers.filter((worker) => own.includes(worker));
    },
  };
}

/** A chunked body that is not JSON may never end, or wait for the response. */
const mayHaveNames = ({ head }: ExchangeView): boolean =>
  head.isChunked ? /[/+]json\b/i.test(head.get('content-type') ?? '') : head.contentLength <= MAX_LOOKED_BYTES;
