import type { Config } from '../config/options.ts';
import { type KubeAccess, findAccess } from '../fleet/discover/kube-access.ts';
import { KubeError } from '../fleet/discover/kube-api.ts';
import { podsOf } from '../fleet/discover/kubernetes.ts';
import { listPods } from '../fleet/discover/list-pods.ts';
import { readPod } from '../fleet/discover/pod.ts';
import { type Finding, ok, problem } from './finding.ts';

const PATIENCE_MS = 15_000;

/** Asks the API server once for the pods that the router would find. @returns also where the ready ones are. */
export async function checkDiscovery(config: Config): Promise<{ findings: Finding[]; urls: string[] }> {
  let access: KubeAccess;
  try {
    access = await findAccess();
  } catch (error) {
    return { findings: [problem((error as Error).message)], urls: [] };
  }
  const query = podsOf(config, access);
  const place = query.namespace === '*' ? 'all namespaces' : `namespace ${query.namespace}`;
  try {
    const { pods } = await listPods(access, query, AbortSignal.timeout(PATIENCE_MS));
    const { serviceDiscoveryPort: port, bootstrapPortAnnotation } = config;
    const readings = pods.map((pod) => readPod(pod, { port, bootstrapPortAnnotation }));
    const urls = readings.flatMap((reading) => (reading.standing === 'ready' ? [reading.worker.url] : []));
    const text = `${pods.length} pods with ${query.selector} in ${place}, ${urls.length} of them ready`;
    return { findings: [urls.length > 0 ? ok(text) : problem(text)], urls };
  } catch (error) {
    const isForbidden = error instanceof KubeError && error.status === 403;
    const hint = isForbidden ? '. Its role must let it list and watch pods: deploy/kubernetes/rbac.yaml' : '';
    return { findings: [problem(`${access.server.host}: ${(error as Error).message}${hint}`)], urls: [] };
  }
}
