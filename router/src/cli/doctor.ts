import { createServer } from 'node:net';
import { createSecureContext } from 'node:tls';
import { startAccess } from '../admit/start-access.ts';
import { workerCertificates } from '../config/certificates.ts';
import { namedWorkers } from '../config/named-workers.ts';
import type { Config } from '../config/options.ts';
import { type Asker, ask } from '../engines/ask.ts';
import type { EngineFacts } from '../engines/engine.ts';
import { identify } from '../engines/engines.ts';
import { WorkerPlaces } from '../fleet/worker-places.ts';
import { checkDiscovery } from './doctor-discovery.ts';
import { type Finding, note, ok, problem } from './finding.ts';
import { readWorkerUrls } from '../fleet/worker-url.ts';

const marks = { ok: 'ok     ', note: 'note   ', problem: 'PROBLEM' } as const;

/** Looks at everything a router of this configuration needs and says what is missing for what. @returns the exit code. */
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
  show([
    ok(`Node.js ${process.versions.node}`),
    await checkPort(config.host, config.port, '--port', config.reusePort),
    await checkPort(config.prometheusHost, config.prometheusPort, '--prometheus-port', config.reusePort),
  ]);
  if (config.serviceDiscovery) {
    print('Service discovery');
    const { findings, urls: found } = await checkDiscovery(config);
    show(findings);
    urls.push(...found.filter((url) => !urls.includes(url)));
  } else if (urls.length === 0)
    show([note('no workers given: name them with --worker-urls, or add them while running')]);
  const versions = new Map<string, string[]>();
  for (const url of urls) {
    print(`Worker ${url}`);
    const { findings, facts } = await checkWorker(url, config);
    show(findings);
    const version = facts?.weightVersion;
    if (version != null) versions.set(version, [...(versions.get(version) ?? []), url]);
  }
  if (versions.size > 1) {
    print('Fleet');
    const list = [...versions].map(([version, holders]) => `"${version}" (${holders.join(', ')})`).join(' and ');
    show([problem(`the engines hold different weights: ${list}. Update all of them to one version.`)]);
  }
  print(problems === 0 ? 'No problems found.' : `${problems} problem${problems === 1 ? '' : 's'} found.`);
  return problems === 0 ? 0 : 1;
}

function checkPort(host: string, port: number, flag: string, reusePort: boolean): Promise<Finding> {
  if (port === 0) return Promise.resolve(ok(`${flag} 0: any free port`));
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(problem(`${flag} ${port} on ${host} can't be listened on (${code}): choose another`)),
    );
    server.listen({ port, host, reusePort }, () =>
      server.close(() => resolve(ok(`${flag} ${port} on ${host} is free`))),
    );
  });
}

const never = (): boolean => false;

async function checkWorker(url: string, config: Config): Promise<{ findings: Finding[]; facts: EngineFacts | null }> {
  const addresses = readWorkerUrls(url, { secureContext: createSecureContext(workerCertificates(config)) });
  if (typeof addresses === 'string') return { findings: [problem(addresses)], facts: null };
  const address = addresses[0]!;
  const places = new WorkerPlaces(config.workerAllow);
  const refusal = places.isLimited ? places.refusalOf(address.endpoint.host) : null;
  if (refusal !== null) return { findings: [problem(refusal)], facts: null };
  const timeoutMs = config.healthCheckTimeoutSecs * 1000;
  const question = {
    host: address.authority,
    authorization: startAccess(config, { isOwn: never, isOfPluginForClients: never }).workerKey.authorization,
  };
  const asker: Asker = (path) => ask(address.endpoint, address.basePath + path, timeoutMs, question);
  const findings: Finding[] = [];
  try {
    const { status } = await asker(config.healthCheckEndpoint);
    findings.push(
      status === 200
        ? ok(`${config.healthCheckEndpoint} answers 200`)
        : problem(`${config.healthCheckEndpoint} answers ${status}: the router would not send it work`),
    );
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? (error as Error).message;
    return { findings: [problem(`not reachable (${reason}): is the engine up, and the address right?`)], facts: null };
  }
  const facts = await identify(asker);
  findings.push(...describe(facts));
  if (facts.dpSize !== null && facts.dpSize > 1 && address.rank === null && !config.dpAware) {
    findings.push(
      note(`has ${facts.dpSize} data-parallel ranks and shares them out itself: --dp-aware routes to each`),
    );
  }
  return { findings, facts };
}

/** What the engine's facts mean for the features of the router. */
function describe(facts: EngineFacts): Finding[] {
  if (facts.kind === 'openai') {
    return [
      note(`not SGLang or vLLM (model ${facts.model ?? 'unknown'}): routed, but weights and pauses are not known`),
    ];
  }
  const name = facts.kind === 'sglang' ? 'SGLang' : 'vLLM';
  const findings = [ok(`${name} ${facts.engineVersion ?? '(unknown version)'}, model ${facts.model ?? 'unknown'}`)];
  findings.push(
    facts.weightVersion === null
      ? note(`tells no weight version: one that comes back with old weights can't be told from the others`)
      : ok(`weights "${facts.weightVersion}"`),
  );
  if (facts.hasPrefixCache === true) findings.push(ok('prefix caching is on'));
  else if (facts.hasPrefixCache === false) {
    const flag =
      facts.kind === 'sglang' ? 'start it without --disable-radix-cache' : 'start it with --enable-prefix-caching';
    findings.push(problem(`prefix caching is off, so keeping a trajectory on one engine gains nothing: ${flag}`));
  } else findings.push(note('does not tell whether prefix caching is on'));
  if (facts.returnsRoutedExperts === false) {
    findings.push(note('returns no routed experts (needed for routing replay): --enable-return-routed-experts'));
  } else if (facts.returnsRoutedExperts === true) findings.push(ok('returns routed experts when asked'));
  if (facts.hasControlCalls === false) {
    findings.push(note('can not be paused or given new weights over HTTP: start it with VLLM_SERVER_DEV_MODE=1'));
  }
  return findings;
}
