import type { Config } from '../../config/options.ts';
import { type KubeAccess, findAccess } from '../../fleet/discover/kube-access.ts';
import { KubeError } from '../../fleet/discover/kube-api.ts';
import { podOptionsOf, podsOf } from '../../fleet/discover/kubernetes.ts';
import { listPods } from '../../fleet/discover/list-pods.ts';
import { type Pod, type PodOptions, readPod } from '../../fleet/discover/pod.ts';
import { roleOf } from '../../fleet/discover/role-selectors.ts';
import { type Finding, ok, problem } from './finding.ts';

const PATIENCE_MS = 15_000;

/** Lists the pods that the router would discover. @returns also the URLs of the ready ones */
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
    const options = podOptionsOf(config);
    const urls = pods.flatMap((pod) => readyUrl(pod, options));
    if (options.roles === null) return { findings: [count(pods, options, `with ${query.selector} in ${place}`)], urls };
    const findings = (['prefill', 'decode'] as const).flatMap((role) => {
      const selector = options.roles![role];
      const ofRole = pods.filter((pod) => roleOf(pod.metadata?.labels, options.roles!) === role);
      return selector.length === 0
        ? []
        : [count(ofRole, options, `for ${role}, with ${selector.join(',')} in ${place}`)];
    });
    const mistakes = pods.flatMap((pod) => {
      const reading = readPod(pod, options);
      if (reading.state !== 'away' || reading.mistake === undefined) return [];
      return [problem(`pod ${pod.metadata?.name} ${reading.mistake}`)];
    });
    return { findings: [...findings, ...mistakes], urls };
  } catch (error) {
    return {
      findings: [problem(`${access.server.host}: ${(error as Error).message}${hintOf(error, access)}`)],
      urls: [],
    };
  }
}

function hintOf(error: unknown, { server }: KubeAccess): string {
  if (!(error instanceof KubeError)) return '';
  const isForbidden = error.status === 403;
  const isUnknown = server.protocol === 'http:' && (isForbidden || error.status === 401);
  return (
    (isForbidden ? '. Its role must let it list and watch pods: deploy/kubernetes/rbac.yaml' : '') +
    (isUnknown ? '. Without TLS (http://) no credentials are shown' : '')
  );
}

function readyUrl(pod: Pod, options: PodOptions): string[] {
  const reading = readPod(pod, options);
  return reading.state === 'ready' ? [reading.worker.url] : [];
}

/** A problem if no pod is ready. */
function count(pods: readonly Pod[], options: PodOptions, which: string): Finding {
  const ready = pods.flatMap((pod) => readyUrl(pod, options)).length;
  return (ready > 0 ? ok : problem)(`${pods.length} pods ${which}, ${ready} of them ready`);
}
