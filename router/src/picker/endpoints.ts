import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { Worker } from '../fleet/worker.ts';
import type { ProcessingRequest, Struct, Value } from './messages.ts';

/** The endpoint picker protocol 1.0.0 (kubernetes-sigs/gateway-api-inference-extension, proposal 004). */
export const DESTINATION = 'x-gateway-destination-endpoint';
const SERVED = 'x-gateway-destination-endpoint-served';
const SUBSET = 'x-gateway-destination-endpoint-subset';

const addresses = new WeakMap<Worker, string>();

/** `ip:port` of a worker, as gateways want it. Rejects if its host name cannot be resolved. */
export async function endpointOf(worker: Worker): Promise<string> {
  const known = knownEndpointOf(worker);
  if (known !== null) return known;
  const { hostname } = new URL(worker.engineUrl);
  return note(worker, (await lookup(hostname, { family: 4 })).address);
}

/** null: its host name was not resolved yet. */
export function knownEndpointOf(worker: Worker): string | null {
  const known = addresses.get(worker);
  if (known !== undefined) return known;
  const { hostname } = new URL(worker.engineUrl);
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0 ? null : note(worker, hostname);
}

function note(worker: Worker, address: string): string {
  const { port, protocol } = new URL(worker.engineUrl);
  const endpoint = `${address}:${port || (protocol === 'https:' ? 443 : 80)}`;
  addresses.set(worker, endpoint);
  return endpoint;
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
