import type { KubeAccess } from './kube-access.ts';
import { KubeError, askJson } from './kube-api.ts';

/** What all objects of the API server have. Any of it may be missing. */
export interface KubeObject {
  readonly metadata?: {
    readonly name?: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly deletionTimestamp?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
}

export interface ObjectQuery {
  /** `/api/v1/namespaces/x/pods` */
  readonly path: string;
  /** As in `labelSelector`. */
  readonly selector?: string;
  /** The name of the only object. */
  readonly name?: string;
}

/** Objects per page: parsing one must not block the event loop, and a pod can have 20 KB. */
const PAGE = 50;
const SILENCE_MS = 30_000;

export function pathOf({ path, selector, name }: ObjectQuery): string {
  const encoded = encodeURIComponent(name === undefined ? (selector ?? '') : `metadata.name=${name}`);
  return `${path}?${name === undefined ? 'labelSelector' : 'fieldSelector'}=${encoded}`;
}

/** All objects of one resource version, and that version. */
export async function listObjects(
  access: KubeAccess,
  query: ObjectQuery,
  signal: AbortSignal,
): Promise<{ objects: KubeObject[]; version: string }> {
  const objects: KubeObject[] = [];
  let rest: string | undefined = '';
  let version = '';
  do {
    const path: string = `${pathOf(query)}&limit=${PAGE}${rest === '' ? '' : `&continue=${encodeURIComponent(rest)}`}`;
    const page = (await askJson(access, path, { signal, silenceMs: SILENCE_MS }).catch(explained(query))) as {
      readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
      readonly items?: readonly KubeObject[] | null;
    };
    version = page.metadata?.resourceVersion ?? '';
    if (!Array.isArray(page.items) || version === '') throw new Error(`the response is not a list of ${kindOf(query)}`);
    objects.push(...(page.items as readonly KubeObject[]));
    rest = page.metadata?.continue;
  } while (rest !== undefined && rest !== '');
  return { objects, version };
}

/** The API server responds with 404 to a list only if it does not know the kind of object. */
const explained =
  (query: ObjectQuery) =>
  (error: unknown): never => {
    if (!(error instanceof KubeError) || error.status !== 404) throw error;
    throw new KubeError(404, `${error.message} (install the resource ${kindOf(query)} of ${query.path.split('/')[2]})`);
  };

/** `pods` */
export const kindOf = ({ path }: ObjectQuery): string => path.slice(path.lastIndexOf('/') + 1);
