import type { Context, Hono } from 'hono';
import * as z from 'zod';
import { checkJson } from '../../config/check-input.ts';
import type { DeploymentList } from '../deployment-list.ts';
import type { Deployment } from '../deployment-list.ts';
import type { Transition } from '../plan.ts';
import { refuse } from './refusal.ts';

/** What a client may change of a deployment: of a configured one for as long as the router runs. */
const changes = z.looseObject({
  hotLoadTransitionType: z.enum(['ASYNC', 'SYNC']).optional(),
  hotLoadTrainerJob: z.string().optional(),
  displayName: z.string().optional(),
  description: z.string().optional(),
  baseModel: z.string().optional(),
});
type Changes = z.output<typeof changes>;

/** The account of deployments without a name. */
const OWN_ACCOUNT = 'turnout';

const transitions = { ASYNC: 'async', SYNC: 'sync' } as const;

/** Accounts and deployments as SDKs ask for them (fireworks-ai 1.2.28, `DeploymentManager`): those of the configuration, none is made. */
export class ControlPlane {
  readonly #deployments: DeploymentList;
  readonly #changes = new Map<Deployment, Changes>();

  constructor(deployments: DeploymentList) {
    this.#deployments = deployments;
  }

  transitionOf(deployment: Deployment): Transition {
    const changed = this.#changes.get(deployment)?.hotLoadTransitionType;
    return changed === undefined ? deployment.transition : transitions[changed];
  }

  addTo(app: Hono): void {
    // The SDK asks for two, and ends if it gets more than one.
    const accounts = [...new Set(this.#deployments.all.map(accountOf))]
      .slice(0, 1)
      .map((id) => ({ name: `accounts/${id}` }));

    app.get('/v1/accounts', (c) => c.json({ accounts, nextPageToken: '', totalSize: accounts.length }));
    app.get('/v1/accounts/:account', (c) => {
      const name = `accounts/${c.req.param('account')}`;
      const isKnown = this.#deployments.all.some(
        (each) => each.name === null || `accounts/${accountOf(each)}` === name,
      );
      return isKnown ? c.json({ name }) : refuse(c, 404, `There is no account ${name}.`);
    });
    app.get('/v1/accounts/:account/deployments', (c) => {
      const account = c.req.param('account');
      const names = this.#deployments.all.flatMap((each) => each.name ?? []);
      const found = names.filter((name) => name.startsWith(`accounts/${account}/`));
      const deployments = found.map((name) => this.#json(name, this.#deployments.find({ deployment: name })!));
      return c.json({ deployments, nextPageToken: '', totalSize: deployments.length });
    });
    app.post('/v1/accounts/:account/deployments', (c) => {
      const id = c.req.query('deploymentId') ?? '';
      if (id === '') return refuse(c, 400, 'The query needs deploymentId.');
      const name = `accounts/${c.req.param('account')}/deployments/${id}`;
      if (this.#deployments.find({ deployment: name }) !== null) return refuse(c, 409, `${name} exists already.`);
      return refuse(c, 501, 'This router makes no deployments: add it to `deployments` in the file of --config.');
    });
    app.get('/v1/accounts/:account/deployments/:deployment', (c) => {
      const found = this.#find(c);
      return found instanceof Response ? found : c.json(this.#json(nameIn(c), found));
    });
    app.patch('/v1/accounts/:account/deployments/:deployment', async (c) => {
      const found = this.#find(c);
      if (found instanceof Response) return found;
      const { data, problem } = checkJson(changes, await c.req.text());
      if (problem !== null) return refuse(c, 400, problem);
      const others = Object.keys(data).filter((name) => !Object.hasOwn(changes.shape, name));
      if (others.length > 0) return refuse(c, 501, `This router does not change ${others.join(', ')} of deployments.`);
      const mask = c.req.query('updateMask')?.split(',').map(camel);
      const { baseModel: _, ...wanted } = Object.fromEntries(
        Object.entries(data).filter(([name]) => mask?.includes(name) ?? true),
      ) as Changes;
      this.#changes.set(found, { ...this.#changes.get(found), ...wanted });
      return c.json(this.#json(nameIn(c), found));
    });
    app.delete('/v1/accounts/:account/deployments/:deployment', (c) => {
      const found = this.#find(c);
      if (found instanceof Response) return found;
      return refuse(c, 501, 'This router deletes no deployments: they are configured (--swap-snapshots, deployments).');
    });
  }

  #find(c: Context): Deployment | Response {
    const names = { deployment: nameIn(c) };
    return this.#deployments.find(names) ?? refuse(c, 404, this.#deployments.noneFor(names));
  }

  #json(name: string, deployment: Deployment): object {
    const engines = new Set(deployment.workers().map(({ engineUrl }) => engineUrl)).size;
    const { model } = deployment;
    return {
      name,
      // Without engines the SDK waits.
      state: engines > 0 ? 'READY' : 'CREATING',
      baseModel: model ?? servedModel(name, deployment),
      enableHotLoad: true,
      hotLoadTransitionType: this.transitionOf(deployment).toUpperCase(),
      replicaCount: engines,
      ...this.#changes.get(deployment),
    };
  }
}

export const nameIn = (c: Context): string =>
  `accounts/${c.req.param('account')}/deployments/${c.req.param('deployment')}`;

const accountOf = ({ name }: Deployment): string => name?.split('/')[1] ?? OWN_ACCOUNT;

/** Any name would do: the deployment answers to all. */
function servedModel(name: string, { workers }: Deployment): string {
  const [served = 'model'] = workers().flatMap(({ models }) => [...(models?.keys() ?? [])]);
  return `accounts/${name.split('/')[1]}/models/${served.slice(served.lastIndexOf('/') + 1)}`;
}

const camel = (text: string): string =>
  text.trim().replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
