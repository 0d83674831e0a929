import { existsSync, readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { isIPv6 } from 'node:net';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

/** How the API server is reached, and with which credentials. */
export interface KubeAccess {
  readonly server: URL;
  /** The namespace of the router itself, or of the kubeconfig's context. */
  readonly namespace: string;
  /** Headers and TLS of one request. Read for each request, because tokens and certificates are rotated. */
  options(): Promise<RequestOptions>;
}

export type KubeClient = typeof import('@kubernetes/client-node');

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** As kubectl: $KUBECONFIG, the pod's service account, ~/.kube/config. Rejects with a message for the user. */
export async function findAccess(
  env: NodeJS.ProcessEnv = process.env,
  serviceAccount = SERVICE_ACCOUNT,
  load: () => Promise<KubeClient> = () => import('@kubernetes/client-node'),
): Promise<KubeAccess> {
  const named = (env['KUBECONFIG'] ?? '').split(delimiter).filter((path) => path !== '');
  if (named.length > 0) return fromKubeconfig(named, load);
  const host = env['KUBERNETES_SERVICE_HOST'];
  if (host !== undefined && existsSync(join(serviceAccount, 'token'))) {
    return inCluster(host, env['KUBERNETES_SERVICE_PORT'] ?? '443', serviceAccount);
  }
  const usual = join(env['HOME'] ?? homedir(), '.kube', 'config');
  if (existsSync(usual)) return fromKubeconfig([usual], load);
  throw new Error('not in a pod with a service account, and neither $KUBECONFIG nor ~/.kube/config exists');
}

/** Kubernetes, "Accessing the Kubernetes API from a Pod": every pod has this, so no package is needed. */
function inCluster(host: string, port: string, folder: string): KubeAccess {
  const read = (name: string): string => readFileSync(join(folder, name), 'utf8').trim();
  return {
    server: new URL(`https://${isIPv6(host) ? `[${host}]` : host}:${port}`),
    namespace: existsSync(join(folder, 'namespace')) ? read('namespace') : 'default',
    // The kubelet rotates the token about every hour.
    async options() {
      return { ca: read('ca.crt'), headers: { authorization: `Bearer ${read('token')}` } };
    },
  };
}

/** A kubeconfig can name client certificates, OIDC, commands or proxies: the official client knows them all. */
async function fromKubeconfig(paths: readonly string[], load: () => Promise<KubeClient>): Promise<KubeAccess> {
  const client = await load().catch((error: unknown) => {
    const [reason] = (error as Error).message.split(/ imported from |\n/);
    throw new Error(
      `a kubeconfig is read with the package @kubernetes/client-node, which can't be loaded (${reason}). Install it next to turnout: npm install @kubernetes/client-node. (It is not needed in a pod with a service account.)`,
      { cause: error },
    );
  });
  const config = new client.KubeConfig();
  try {
    config.loadFromFile(paths[0]!);
    for (const path of paths.slice(1)) {
      const more = new client.KubeConfig();
      more.loadFromFile(path);
      // The first file that names a context decides, as in kubectl.
      config.mergeConfig(more, Boolean(config.getCurrentContext()));
    }
  } catch (error) {
    throw new Error(`the kubeconfig ${paths.join(delimiter)} can't be read: ${(error as Error).message}`, {
      cause: error,
    });
  }
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new Error(`the kubeconfig ${paths.join(delimiter)} has no current context`);
  if (!/^https?:\/\//i.test(cluster.server) || !URL.canParse(cluster.server)) {
    throw new Error(`the kubeconfig ${paths.join(delimiter)} names no http(s):// server: ${cluster.server}`);
  }
  const server = new URL(cluster.server);
  const isPlain = server.protocol === 'http:';
  return {
    server,
    namespace: config.getContextObject(config.getCurrentContext())?.namespace ?? 'default',
    async options() {
      // As kubectl (client-go 0.36, ClientConfig): no credentials without TLS. The package refuses http:// instead.
      if (isPlain && cluster.proxyUrl === undefined) return {};
      const options: RequestOptions = {};
      await config.applyToHTTPSOptions(options);
      // Its agent keeps the first certificates that it read (client-node 2.0.1, agentCache), so it is for proxies only.
      if (cluster.proxyUrl === undefined) delete options.agent;
      return isPlain ? { agent: options.agent } : options;
    },
  };
}
