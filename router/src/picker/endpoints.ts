import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { Worker } from '../fleet/worker.ts';
import type { ProcessingRequest, Struct, Value } from './messages.ts';

/** The endpoint picker protocol 1.0.0 (kubernetes-sigs/gateway-api-inference-extension, proposal 004). */
export const DESTINATION = 'x-gateway-destination-endpoint';
const SERVED = 'x-gateway-destination-endpoint-served';
const SUBSET = 'x-gateway-destination-endpoint-subset';

/** A host name is resolved again after this time: an engine that was restarted may have another address. */
const RESOLVED_MS = 5_000;

interface Resolved {
  readonly endpoint: string;
  /** Monotonic ms. */
  readonly untilMs: number;
}

const resolved = new WeakMap<Worker, Resolved>();
const lookups = new WeakMap<Worker, Promise<string>>();

/** `ip:port` of a worker, as gateways want it. Rejects if its host name cannot be resolved and never could. */
export function endpointOf(worker: Worker): string | Promise<string> {
  const last = resolved.get(worker) ?? notResolved(worker);
  return last !== null && performance.now() < last.untilMs ? last.endpoint : lookedUp(worker);
}

/** The endpoint as it was resolved last, and is then resolved again; null: it was not resolved yet. */
export function knownEndpointOf(worker: Worker): string | null {
  const now = endpointOf(worker);
  if (typeof now === 'string') return now;
  now.catch(() => {});
  return resolved.get(worker)?.endpoint ?? null;
}

/** @returns null: the worker has a host name */
function notResolved(worker: Worker): Resolved | null {
  const { hostname } = new URL(worker.engineUrl);
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0 ? null : note(worker, hostname, Infinity);
}

/** One lookup at a time for each worker. */
function lookedUp(worker: Worker): Promise<string> {
  const present = lookups.get(worker);
  if (present !== undefined) return present;
  const begun = look(worker).finally(() => lookups.delete(worker));
  lookups.set(worker, begun);
  return begun;
}

async function look(worker: Worker): Promise<string> {
  const { hostname } = new URL(worker.engineUrl);
  try {
    const { address } = await lookup(hostname, { family: 4 });
    return note(worker, address, performance.now() + RESOLVED_MS).endpoint;
  } catch (error) {
    const last = resolved.get(worker);
    if (last === undefined) throw error;
    // A name server that fails for a moment says nothing about the engine.
    resolved.set(worker, { ...last, untilMs: performance.now() + RESOLVED_MS });
    return last.endpoint;
  }
}

function note(worker: Worker, address: string, untilMs: number): Resolved {
  const { port, protocol } = new URL(worker.engineUrl);
  const endpoint = `${address}:${port || (protocol === 'https:' ? 443 : 80)}`;
  const noted = { endpoint, untilMs };
  resolved.set(worker, noted);
  return noted;
}

/** The gateway gets it beside the header: both must have the same value. */
export const destinationMetadata = (endpoint: string): Struct => ({
  fields: { 'envoy.lb': { structValue: { fields: { [DESTINATION]: { stringValue: endpoint } } } } },
});

const metadata = ({ metadataContext }: ProcessingRequest, namespace: string, name: string): Value | undefined =>
  metadataContext?.filterMetadata[namespace]?.fields[name];

/** The endpoint that has served the request, by metadata or by Envoy's attribute `upstream.address`; null: the gateway does not say it. */
export function servedEndpoint(message: ProcessingRequest): string | null {
  const inMetadata = metadata(message, 'envoy.lb', SERVED)?.stringValue;
  if (inMetadata !== undefined) return inMetadata;
  for (const { fields } of Object.values(message.attributes ?? {})) {
    const address = fields['upstream.address']?.stringValue;
    if (address !== undefined) return address;
  }
  return null;
}

/** The endpoints among which one may be picked, `ip:port` or `ip` for all its ports; null: all. */
export function subsetOf(message: ProcessingRequest): readonly string[] | null {
  const hint = metadata(message, 'envoy.lb.subset_hint', SUBSET);
  if (hint === undefined) return null;
  const texts = hint.listValue?.values.map(({ stringValue = '' }) => stringValue) ?? [hint.stringValue ?? ''];
  return texts
    .flatMap((text) => text.split(','))
    .map((text) => text.trim())
    .filter((text) => text !== '');
}

/** Whether a worker is one of a subset. */
export function isIn(subset: readonly string[], worker: Worker): boolean {
  const endpoint = knownEndpointOf(worker);
  if (endpoint === null) return false;
  return subset.some((each) => each === endpoint || each === endpoint.slice(0, endpoint.lastIndexOf(':')));
}
