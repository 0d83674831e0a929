import type { Context, Hono } from 'hono';
import * as z from 'zod';
import { checkJson } from '../config/check-input.ts';
import { IDENTITY } from '../config/options/swap.ts';
import { RouterError } from '../kit/errors.ts';
import type { DeploymentList } from './deployment-list.ts';
import type { Deployment, WorkerStatus } from './deployment-list.ts';
import type { MovedEngine, TrainerMoves } from './trainer-moves.ts';
import type { WorkerSet } from './worker-set.ts';

const wanted = z.strictObject({
  identity: z.string(),
  deployment: z.string().optional(),
  path: z.string().min(1).optional(),
  transition: z.enum(['async', 'sync']).optional(),
  reset_prompt_cache: z.enum(['all', 'new_session', 'none']).default('all'),
});

const begun = z.strictObject({
  identity: z.string().regex(IDENTITY, 'has characters other than A-Z a-z 0-9 . _ -'),
  deployment: z.string().optional(),
  transition: z.enum(['async', 'sync']).optional(),
});
const ended = z.strictObject({ identity: z.string().optional(), deployment: z.string().optional() });

/** Swaps in the ledger that are shown. */
const SHOWN = 10;

/** `/swap`: weight swaps for clients that do not use the hot-load API. */
export function addSwapRoutes(app: Hono, deployments: DeploymentList, movesOf: (set: WorkerSet) => TrainerMoves): void {
  const named = (c: Context, name: string | undefined): Deployment | Response => {
    const { all } = deployments;
    if (name === undefined && new Set(all.map((each) => each.set)).size === 1) return all[0]!;
    const found = name === undefined ? undefined : all.find((each) => each.name === name);
    const names = all.flatMap((each) => each.name ?? []).join(', ');
    const say = names === '' ? 'leave it out: --swap-snapshots has one for all workers' : `specify one of ${names}`;
    return found ?? problem(c, `deployment: ${say}`);
  };

  app.post('/swap', async (c) => {
    const body = checkJson(wanted, await c.req.text());
    if (body.problem !== null) return problem(c, body.problem);
    const deployment = named(c, body.data.deployment);
    if (deployment instanceof Response) return deployment;
    const { identity, path, transition = deployment.transition, reset_prompt_cache: reset } = body.data;
    if (!IDENTITY.test(identity)) {
      const message = 'The identity of a snapshot has only the characters A-Z a-z 0-9 . _ - and is not . or ..';
      return problem(c, message);
    }
    const { refusal } = deployment.set;
    if (refusal !== null) return refused(c, refusal);
    deployment.set.signal({ identity, path, transition, reset, mover: 'router' });
    const { running, waiting } = deployment.set;
    await deployment.set.flush();
    return c.json({ identity, state: waiting === identity ? 'queued' : running === null ? 'done' : 'started' }, 202);
  });

  app.get('/swap', (c) => c.json({ deployments: deployments.all.map((each) => shown(deployments, each)) }));

  app.post('/swap/begin', async (c) => {
    const body = checkJson(begun, await c.req.text());
    if (body.problem !== null) return problem(c, body.problem);
    const deployment = named(c, body.data.deployment);
    if (deployment instanceof Response) return deployment;
    const { identity, transition = deployment.transition } = body.data;
    const moves = movesOf(deployment.set);
    return reported(c, identity, await moves.begin(identity, transition));
  });

  app.post('/swap/end', async (c) => {
    const body = checkJson(ended, await c.req.text());
    if (body.problem !== null) return problem(c, body.problem);
    const deployment = named(c, body.data.deployment);
    if (deployment instanceof Response) return deployment;
    const set = deployment.set;
    const { identity = set.running?.identity ?? '' } = body.data;
    return reported(c, identity, await movesOf(set).end(body.data.identity));
  });

  app.delete('/swap', async (c) => {
    const deployment = named(c, c.req.query('deployment'));
    if (deployment instanceof Response) return deployment;
    // One that runs here is undone here.
    const refusal = deployment.set.running === null ? deployment.set.refusal : null;
    if (refusal !== null) return refused(c, refusal);
    await deployment.set.undo();
    return c.json(shown(deployments, deployment), 202);
  });
}

function shown(deployments: DeploymentList, deployment: Deployment): object {
  const { ledger, running, waiting, places } = deployment.set;
  return {
    deployment: deployment.name,
    model: deployment.model,
    transition: deployment.transition,
    snapshot: places.current,
    running: running?.identity ?? null,
    waiting,
    workers: deployments.status(deployment).map(workerJson),
    swaps: ledger.latest(SHOWN).map((entry) => ({
      identity: entry.identity,
      seq: entry.seq,
      transition: entry.transition,
      reset_prompt_cache: entry.reset,
      moved_by: entry.mover,
      started_at: new Date(entry.startedAt).toISOString(),
      ended_at: entry.endedAt === null ? null : new Date(entry.endedAt).toISOString(),
      engines: Array.from(entry.engines, ([url, { stage, error, phases, beganAt }]) => ({
        url,
        stage,
        error,
        began_at: beganAt === undefined ? null : new Date(beganAt).toISOString(),
        phases_ms: phases,
      })),
    })),
  };
}

const workerJson = ({ worker, ...status }: WorkerStatus): object => ({ url: worker.url, ...status });

/** 200 if all engines did it, 207 if some did, 502 if none did: as control requests that go to all engines. */
function reported(c: Context, identity: string, engines: RouterError | readonly MovedEngine[]): Response {
  if (engines instanceof RouterError) return refused(c, engines);
  const ok = engines.filter(({ isReady }) => isReady).length;
  const failed = engines.length - ok;
  const list = engines.map(({ url, isReady, error }) => ({ url, ok: isReady, error }));
  return c.json({ identity, engines: list, ok, failed }, failed === 0 ? 200 : ok > 0 ? 207 : 502);
}

const problem = (c: Context, message: string): Response => refused(c, new RouterError('bad_request', message));

const refused = (c: Context, { status, message, code }: RouterError): Response =>
  c.json({ error: message, code }, status as 400 | 409 | 503, { 'x-turnout-error': code });
