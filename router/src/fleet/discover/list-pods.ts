import type { KubeAccess } from './kube-access.ts';
import { getJson } from './kube-api.ts';
import type { Pod } from './pod.ts';

export interface PodQuery {
  /** `/api/v1/namespaces/x/pods` */
  readonly path: string;
  /** As in `labelSelector`. */
  readonly selector: string;
}

/** Pods per page: parsing one must not block the event loop, and a pod can have 20 KB. */
const PAGE = 50;
const SILENCE_MS = 30_000;

export const pathOf = ({ path, selector }: PodQuery): string => `${path}?labelSelector=${encodeURIComponent(selector)}`;

/** All pods of one resource version, and that version. */
export async function listPods(
  access: KubeAccess,
  query: PodQuery,
  signal: AbortSignal,
): Promise<{ pods: Pod[]; version: string }> {
  const pods: Pod[] = [];
  let rest: string | undefined = '';
  let version = '';
  do {
    const path: string = `${pathOf(query)}&limit=${PAGE}${rest === '' ? '' : `&continue=${encodeURIComponent(rest)}`}`;
    const page = (await getJson(access, path, { signal, silenceMs: SILENCE_MS })) as {
      readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
      readonly items?: readonly Pod[] | null;
    };
    version = page.metadata?.resourceVersion ?? '';
    if (!Array.isArray(page.items) || version === '') throw new Error('the response is not a list of pods');
    pods.push(...(page.items as readonly Pod[]));
    rest = page.metadata?.continue;
  } while (rest !== undefined && rest !== '');
  return { pods, version };
}
