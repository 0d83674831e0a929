import { namedWorkers } from '../../config/named-workers.ts';
import type { Config } from '../../config/options.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { loadTokenizer } from '../../recorder/thread/tokens/load-tokenizer.ts';
import { checkPort } from './check-port.ts';
import { type Encode, type EngineAccess, checkWorker, engineAccess } from './check-worker.ts';
import { checkTinker } from './check-tinker.ts';
import { type Finding, note, ok, problem } from './finding.ts';
import { ConfigError } from '../../config/load.ts';
import { wantedPorts } from '../../listen/ports.ts';
import { openFileLimit } from '../../wire/open-files.ts';
import { checkStart } from '../check-start.ts';
import { type KubeAccess, findAccess } from '../../fleet/discover/kube-access.ts';
import { KubeError } from '../../fleet/discover/kube-api.ts';
import { podOptionsOf, podsOf, podsPath } from '../../fleet/discover/follow-pods.ts';
import { poolQuery, readPool } from '../../fleet/discover/inference-pool.ts';
import { type ObjectQuery, listObjects } from '../../fleet/discover/list-objects.ts';
import { type Pod, type PodOptions, readPod } from '../../fleet/discover/pod.ts';
import { roleOf } from '../../fleet/discover/role-selectors.ts';

const marks = { ok: 'ok     ', note: 'note   ', problem: 'PROBLEM' } as const;

/** Checks everything that a router with this configuration needs. @returns the exit code */
export async function doctor(config: Config, print: (line: string) => void): Promise<number> {
  const urls = namedWorkers(config).map(({ url }) => url);
  let problems = 0;
  const show = (findings: readonly Finding[]): void => {
    for (const { state, text } of findings) {
      print(`  ${marks[state]}  ${text}`);
      if (state === 'problem') problems++;
    }
  };
  print('This machine');
  show(await checkMachine(config));
  if (config.tinker) show(await checkTinker(config));
  if (config.serviceDiscovery || config.poolName !== undefined) {
    print('Service discovery');
    const { findings, urls: found } = await checkDiscovery(config);
    show(findings);
    urls.push(...found.filter((url) => !urls.includes(url)));
  } else if (urls.length === 0)
    show([note('no workers given: use --worker-urls, or add workers while the router runs')]);
  const encode = await encoder(config);
  const known = new Map<string, EngineFacts>();
  const access = accessOf(config);
  for (const url of urls) {
    print(`Worker ${url}`);
    if (access === null) {
      show([note('not checked, because a file with certificates or keys cannot be read (see above)')]);
      continue;
    }
    const { findings, facts } = await checkWorker(url, config, access, encode);
    show(findings);
    if (facts !== null) known.set(url, facts);
  }
  const differences = checkFleet(known);
  if (differences.length > 0) print('Fleet');
  show(differences);
  print(problems === 0 ? 'No problems found.' : `${problems} problem${problems === 1 ? '' : 's'} found.`);
  return problems === 0 ? 0 : 1;
}

/** null if a file cannot be read, which `checkMachine` reports. */
function accessOf(config: Config): EngineAccess | null {
  try {
    return engineAccess(config);
  } catch {
    return null;
  }
}

/** null if no tokenizer is configured, or if it cannot be loaded, which `checkMachine` reports. */
async function encoder({ tokenizerPath }: Config): Promise<Encode | null> {
  if (tokenizerPath === undefined) return null;
  const tokenizer = await loadTokenizer(tokenizerPath).catch(() => null);
  return tokenizer === null ? null : async (text) => [...(await tokenizer.encode(text, true))];
}

/** Differences between engines that should be alike. */
function checkFleet(known: ReadonlyMap<string, EngineFacts>): Finding[] {
  const holdersOf = (valueOf: (facts: EngineFacts) => string | null): Map<string, string[]> => {
    const holders = new Map<string, string[]>();
    for (const [url, facts] of known) {
      const value = valueOf(facts);
      if (value !== null) holders.set(value, [...(holders.get(value) ?? []), url]);
    }
    return holders;
  };
  const listed = (holders: Map<string, string[]>): string =>
    [...holders].map(([value, urls]) => `"${value}" (${urls.join(', ')})`).join(' and ');
  const versions = holdersOf(({ weightVersion }) => weightVersion);
  const models = holdersOf(({ model }) => model);
  // Engines of different models have weights of their own.
  const differs = models.size > 1 ? note : problem;
  return [
    ...(versions.size > 1
      ? [differs(`the engines hold different weights: ${listed(versions)}. Update all of one model to one version.`)]
      : []),
    ...(models.size > 1
      ? [note(`the engines serve different models: ${listed(models)}. Requests are then routed by their "model".`)]
      : []),
  ];
}

/** Each stream has a client and an engine connection. */
const FEW_FILES = 8_192;

/** Checks Node.js, ports, limits, and every file that a start reads. */
async function checkMachine(config: Config): Promise<Finding[]> {
  const files = openFileLimit();
  const metrics = { host: config.prometheusHost, port: config.prometheusPort };
  return [
    ok(`Node.js ${process.versions.node}`),
    ...(await Promise.all(wantedPorts(config).map((wanted) => checkPort(wanted, metrics)))),
    files < FEW_FILES
      ? note(
          `open files: ${files} at most, which is about ${Math.floor(files / 2)} requests in flight; raise it with ulimit -n`,
        )
      : ok(`open files: ${files} at most`),
    await checkConfiguration(config),
  ];
}

/** Loads plugins, policies, tokenizer, keys, certificates and folders, as a start does. */
async function checkConfiguration(config: Config): Promise<Finding> {
  try {
    await checkStart(config);
    // A start without plugins that need it does not read it.
    if (config.tokenizerPath !== undefined) await loadTokenizer(config.tokenizerPath).catch(asConfigError);
    return ok('all files of the configuration can be loaded (plugins, policy, tokenizer, keys, certificates, folders)');
  } catch (error) {
    if (error instanceof ConfigError) return problem(error.message);
    throw error;
  }
}

function asConfigError(error: unknown): never {
  throw new ConfigError((error as Error).message);
}

const PATIENCE_MS = 15_000;

/** Lists the pods that the router would discover. @returns also the URLs of the ready ones */
async function checkDiscovery(config: Config): Promise<{ findings: Finding[]; urls: string[] }> {
  let access: KubeAccess;
  try {
    access = await findAccess();
  } catch (error) {
    return { findings: [problem((error as Error).message)], urls: [] };
  }
  const signal = AbortSignal.timeout(PATIENCE_MS);
  try {
    const found = config.poolName === undefined ? queryOf(config, access) : await poolOf(config, access, signal);
    if (typeof found === 'string') return { findings: [problem(found)], urls: [] };
    const { query, options, place } = found;
    const { objects: pods } = await listObjects(access, query, signal);
    const urls = pods.flatMap((pod) => readyUrls(pod, options));
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

interface Found {
  readonly query: ObjectQuery;
  readonly options: PodOptions;
  readonly place: string;
}

function queryOf(config: Config, access: KubeAccess): Found {
  const query = podsOf(config, access);
  const place = query.namespace === '*' ? 'all namespaces' : `namespace ${query.namespace}`;
  return { query, options: podOptionsOf(config), place };
}

/** @returns what is wrong with the InferencePool */
async function poolOf(config: Config, access: KubeAccess, signal: AbortSignal): Promise<Found | string> {
  const { poolName: name = '' } = config;
  const namespace = config.poolNamespace ?? access.namespace;
  const { objects } = await listObjects(access, poolQuery(config, namespace), signal);
  const pool = objects.length === 0 ? null : readPool(objects[0]!);
  if (pool === null) return `there is no InferencePool ${name} in namespace ${namespace}`;
  if (typeof pool === 'string') return `InferencePool ${name}: ${pool}`;
  const { selector, ports } = pool;
  const place = `namespace ${namespace} (InferencePool ${name}, ports ${ports.join()})`;
  return { query: { path: podsPath(namespace), selector }, options: { ...podOptionsOf(config), ports }, place };
}

function hintOf(error: unknown, { server }: KubeAccess): string {
  if (!(error instanceof KubeError)) return '';
  const isForbidden = error.status === 403;
  const isUnknown = server.protocol === 'http:' && (isForbidden || error.status === 401);
  return (
    (isForbidden
      ? '. Its role must let it list and watch pods, and the InferencePool of --pool-name: deploy/kubernetes/rbac.yaml'
      : '') + (isUnknown ? '. Without TLS (http://) no credentials are shown' : '')
  );
}

function readyUrls(pod: Pod, options: PodOptions): string[] {
  const reading = readPod(pod, options);
  return reading.state === 'ready' ? reading.workers.map(({ url }) => url) : [];
}

/** A problem if no pod is ready. */
function count(pods: readonly Pod[], options: PodOptions, which: string): Finding {
  const ready = pods.filter((pod) => readyUrls(pod, options).length > 0).length;
  return (ready > 0 ? ok : problem)(`${pods.length} pods ${which}, ${ready} of them ready`);
}
