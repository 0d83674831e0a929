import * as z from 'zod';
import { count, flag, inGroup, secs } from './option.ts';

const option = inGroup('Weight swaps');

/** A name of weights: one segment of a path. */
export const IDENTITY = /^(?!\.{1,2}$)[A-Za-z0-9._-]+$/;
const identity = z.string().regex(IDENTITY, 'has characters other than A-Z a-z 0-9 . _ -');
const template = z.string().regex(/\{identity\}/, 'must contain {identity}, for example /snapshots/{identity}');
const transition = z.enum(['async', 'sync']).default('async');

const deployment = z.strictObject({
  deployment: z.string().regex(/^accounts\/[^/\s]+\/deployments\/[^/\s]+$/, 'is not accounts/NAME/deployments/NAME'),
  model: z
    .string()
    .regex(/^accounts\/[^/\s]+\/models\/[^/\s]+$/, 'is not accounts/NAME/models/NAME')
    .optional(),
  transition,
  snapshots: template,
  'base-identity': identity.default('base'),
  workers: z.union([z.literal('all'), z.array(z.string().min(1)).min(1)]).default('all'),
});

export type DeploymentConfig = z.output<typeof deployment>;

export const swapOptions = {
  swapSnapshots: option(
    '<path>',
    template.optional(),
    'Weight swaps: where engines find the weights of a snapshot, as a path that they see: /snapshots/{identity}. Makes one deployment of all workers. Requests for engines whose weights are being replaced wait in the router.',
    { needsRestart: true, isCommon: true },
  ),
  swapTransition: option(
    '<mode>',
    transition,
    'With --swap-snapshots: async pauses requests in flight and continues them with the new weights; sync lets them finish with the old weights and answers new ones with 425 meanwhile.',
    { needsRestart: true },
  ),
  swapBaseIdentity: option(
    '<identity>',
    identity.default('base'),
    'With --swap-snapshots: the name of the weights with which engines start, if the engines report none.',
    { needsRestart: true },
  ),
  swapConcurrency: option(
    '<count>',
    count.default(0),
    'Engines whose weights are replaced at the same time, so that the others keep generating. 0: all at once.',
  ),
  swapWaitSecs: option(
    '<secs>',
    secs.min(0).max(86_400).default(90),
    'How long new requests wait for an engine whose weights are being replaced (async); then they get 425. The x-fireworks-hot-load-drain-timeout header of a request replaces it. Set it above the load time of the weights, and the clients’ timeouts above it.',
  ),
  swapLoadTimeoutSecs: option(
    '<secs>',
    secs.min(1).default(1_800),
    'How long an engine may take to load weights. After it the load counts as failed.',
  ),
  swapDeltaHook: option(
    '<command...>',
    z.array(z.string().min(1)).default([]),
    'Hot-load API: program and first arguments that make the complete snapshot of a delta (incremental_snapshot_metadata) before engines load it. The identity, the identity of the earlier snapshot and the directory of the new one follow as arguments. Without it deltas are refused.',
    { needsRestart: true },
  ),
  maxWeightStaleness: option(
    '<count>',
    count.optional(),
    'How many snapshots a session may lag behind: if its worker has more newer ones than this since the snapshot that the session began with, its next request gets 409. Unset: any number.',
  ),
  abortStale: option(
    '',
    flag,
    'With --max-weight-staleness: also end the running requests of such sessions, at the weight swap that makes them too old.',
  ),
  deployments: option(
    '<list>',
    z.array(deployment).default([]),
    'Deployments whose weights are swapped by name. See the guide on weight swaps for their fields.',
    { needsRestart: true, isFileOnly: true },
  ),
} as const;
