import { until } from '../harness/within.ts';
import type { Cluster } from './cluster.ts';

const text = { type: 'string' };
const portNumber = { type: 'integer', format: 'int32', minimum: 1, maximum: 65_535 };

/** The definition of a kind of object. Of its `spec` only these fields are accepted. */
export const customResource = (kind: string, group: string, spec: object, annotations: object = {}) => {
  const singular = kind.toLowerCase();
  const openAPIV3Schema = { type: 'object', properties: { spec: { type: 'object', ...spec } } };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${singular}s.${group}`, annotations },
    spec: {
      group,
      scope: 'Namespaced',
      names: { kind, listKind: `${kind}List`, plural: `${singular}s`, singular },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } }],
    },
  };
};

/** The fields of an InferencePool (kubernetes-sigs/gateway-api-inference-extension 1.x) that are read or set here. */
const resource = customResource(
  'InferencePool',
  'inference.networking.k8s.io',
  {
    required: ['selector', 'targetPorts', 'endpointPickerRef'],
    properties: {
      appProtocol: { ...text, enum: ['http', 'kubernetes.io/h2c'], default: 'http' },
      selector: {
        type: 'object',
        required: ['matchLabels'],
        properties: { matchLabels: { type: 'object', additionalProperties: text, minProperties: 1 } },
      },
      targetPorts: {
        type: 'array',
        minItems: 1,
        maxItems: 8,
        items: { type: 'object', required: ['number'], properties: { number: portNumber } },
      },
      endpointPickerRef: {
        type: 'object',
        required: ['name'],
        properties: {
          group: { ...text, default: '' },
          kind: { ...text, default: 'Service' },
          name: text,
          port: { type: 'object', required: ['number'], properties: { number: portNumber } },
          failureMode: { ...text, enum: ['FailOpen', 'FailClose'], default: 'FailClose' },
        },
      },
    },
  },
  // The API server asks for it where the group is one of Kubernetes.
  { 'api-approved.kubernetes.io': 'unapproved, a part of the resource for tests' },
);

/** Registers the resource InferencePool, once. */
export async function createPoolResource(cluster: Cluster): Promise<void> {
  const { status } = await cluster.call('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', resource);
  if (status !== 201 && status !== 409) throw new Error(`InferencePool: status ${status}`);
  const path = '/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools';
  await until('the API server serves the new resource', async () => (await cluster.call('GET', path)).status === 200);
}

export const poolsPath = (namespace: string): string =>
  `/apis/inference.networking.k8s.io/v1/namespaces/${namespace}/inferencepools`;

export const poolOf = (name: string, matchLabels: Record<string, string>, ...ports: number[]) => ({
  apiVersion: 'inference.networking.k8s.io/v1',
  kind: 'InferencePool',
  metadata: { name },
  spec: {
    selector: { matchLabels },
    targetPorts: ports.map((number) => ({ number })),
    endpointPickerRef: { name: 'turnout', port: { number: 9002 } },
  },
});
