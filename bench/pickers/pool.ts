// The engines as an InferencePool in a real Kubernetes API server, where lwepp finds them.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { Cluster, Pods } from '../../router/test/k8s/cluster.ts';
import { until } from '../../router/test/harness/within.ts';
import { poolDefinition } from './contenders.ts';

export interface Pool {
  readonly kubeconfig: string;
  stop(): void;
}

const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const POOLS = '/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools';
/** Of an InferencePool v1. */
const MAX_PORTS = 8;

/** One pod with a port for each engine: an InferencePool has each of its ports on each of its pods. */
export async function startPool(urls: readonly string[]): Promise<Pool> {
  if (urls.length > MAX_PORTS) throw new Error(`an InferencePool has at most ${MAX_PORTS} ports`);
  const cluster = new Cluster();
  try {
    await cluster.start();
    await cluster.must('POST', DEFINITIONS, parse(readFileSync(poolDefinition(), 'utf8')) as object);
    await until('the API server serves InferencePools', async () => (await cluster.call('GET', POOLS)).status === 200);
    const pods = new Pods(cluster, 'default');
    await pods.create('engines', { app: 'engine' });
    await pods.setReady('engines', '127.0.0.1');
    await cluster.must('POST', POOLS, {
      apiVersion: 'inference.networking.k8s.io/v1',
      kind: 'InferencePool',
      metadata: { name: 'bench' },
      spec: {
        selector: { matchLabels: { app: 'engine' } },
        targetPorts: urls.map((url) => ({ number: Number(new URL(url).port) })),
        endpointPickerRef: { name: 'lwepp', port: { number: 9002 } },
      },
    });
    cluster.writeKubeconfig('default');
  } catch (error) {
    cluster.stop();
    throw error;
  }
  return { kubeconfig: cluster.kubeconfig, stop: () => cluster.stop() };
}
