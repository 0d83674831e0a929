import { startAccess } from '../../admit/start-access.ts';
import { eventEndpoints } from '../../choose/kv-index/event-endpoints.ts';
import { DEFAULT_KV_TOKENS } from '../../choose/rollout/worker-state.ts';
import type { Config } from '../../config/options.ts';
import { type Asker, type Reply, Unresolved, ask } from '../../engines/ask.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { Unidentified, identify } from '../../engines/engines.ts';
import { WorkerAllowlist } from '../../fleet/worker-allowlist.ts';
import { WorkerTls } from '../../fleet/worker-tls.ts';
import { type WorkerAddress, readWorkerUrls } from '../../fleet/worker-url.ts';
import { differenceIn, probe } from '../../recorder/tap/tokenizer-check/probe.ts';
import { checkCachedTokens, checkGeneration, checkRolloutFields } from './check-generation.ts';
import { checkTinkerWorker } from './check-tinker.ts';
import { type Finding, note, ok, problem } from './finding.ts';
import { connect } from 'node:net';

export type Encode = (text: string) => Promise<number[]>;

interface Checked {
  readonly findings: Finding[];
  readonly facts: EngineFacts | null;
}

const never = (): boolean => false;

/** The certificates and the key with which engines are asked. */
export type EngineAccess = ReturnType<typeof engineAccess>;

/** Throws an error for the user if a file can't be read. */
export function engineAccess(config: Config) {
  return { tls: new WorkerTls(config), key: startAccess(config).workerKey };
}

/** Checks everything that the router uses of an engine. @param encode the router's tokenizer, or null */
export async function checkWorker(
  url: string,
  config: Config,
  { tls, key }: EngineAccess,
  encode: Encode | null,
): Promise<Checked> {
  const failed = (text: string): Checked => ({ findings: [problem(text)], facts: null });
  const addresses = readWorkerUrls(url, tls);
  if (typeof addresses === 'string') return failed(addresses);
  const address = addresses[0]!;
  const allowlist = new WorkerAllowlist(config.workerAllow);
  const refusal = allowlist.isLimited ? allowlist.refusalOf(address.endpoint.host) : null;
  if (refusal !== null) return failed(refusal);
  const send = (path: string, timeoutMs: number, json?: string): Promise<Reply> =>
    ask(address.endpoint, address.basePath + path, timeoutMs, {
      host: address.authority,
      authorization: key.authorization,
      ...(json === undefined ? {} : { method: 'POST', json }),
    });
  const asker: Asker = (path) => send(path, config.healthCheckTimeoutSecs * 1000);
  let health: Reply;
  try {
    health = await asker(config.healthCheckEndpoint);
  } catch (error) {
    if (error instanceof Unresolved) return failed(`${error.message}: ${RESOLVE}`);
    return failed(await whyUnreachable(error as NodeJS.ErrnoException, address, config));
  }
  const isRouter = await asker('/metrics').then(({ text }) => text.includes('turnout_requests_total'), never);
  if (isRouter) return failed('this is a turnout router, not an engine: requests could loop');
  const findings: Finding[] = [
    health.status === 200
      ? ok(`${config.healthCheckEndpoint} answers 200`)
      : problem(`${config.healthCheckEndpoint} answers ${health.status}: the router would send it no requests`),
  ];
  // As the router does it in the end.
  const facts = await identify(asker, true).catch((error: unknown) => {
    if (error instanceof Unidentified) return error;
    throw error;
  });
  if (facts instanceof Unidentified) {
    findings.push(problem(`does not say what engine it is (${facts.message}): the router would send it no requests`));
    return { findings, facts: null };
  }
  findings.push(...describe(facts));
  if (facts.dpSize !== null && facts.dpSize > 1 && address.rank === null && !config.dpAware) {
    findings.push(
      note(
        `has ${facts.dpSize} data-parallel ranks and distributes requests among them itself: --dp-aware routes to each rank`,
      ),
    );
  }
  if (config.policy === 'rollout' && facts.kvTokens === null) {
    const assumed = DEFAULT_KV_TOKENS.toLocaleString('en');
    findings.push(note(`does not report its KV cache size: the rollout policy assumes ${assumed} tokens`));
  }
  if (config.policy === 'kv_aware') findings.push(await checkEvents(address.url, config));
  if (health.status === 200) {
    const ask = (path: string, json: string) => send(path, GENERATION_MS, json);
    findings.push(await checkGeneration(facts, ask));
    findings.push(...checkRolloutFields(facts, config));
    const cached = await checkCachedTokens(facts, ask);
    if (cached !== null) findings.push(cached);
    if (config.tinker) findings.push(...(await checkTinkerWorker({ facts, asker, post: ask }, config)));
    const post = (path: string, json: string, timeoutMs: number) => send(path, timeoutMs, json);
    if (encode !== null) findings.push(await checkTokenizer({ url: address.url, post }, encode));
  }
  return { findings, facts };
}

const RESOLVE =
  'correct the name in its URL, or the DNS of this machine (on Kubernetes: the service and its namespace; in a container: its network)';

/** For a few tokens of a busy engine. */
const GENERATION_MS = 60_000;

async function whyUnreachable(
  { code, message }: NodeJS.ErrnoException,
  { endpoint, url }: WorkerAddress,
  config: Config,
): Promise<string> {
  const reason = `not reachable (${code ?? message})`;
  if (endpoint.isTls) {
    const plain = { ...endpoint, isTls: false, tls: null };
    const answers = await ask(plain, config.healthCheckEndpoint, config.healthCheckTimeoutSecs * 1000).catch(
      () => null,
    );
    if (answers !== null) return `${reason}: it answers without TLS. Use ${url.replace(/^https/, 'http')}`;
  }
  return `${reason}: is the engine up, and the address right?`;
}

async function checkEvents(url: string, config: Config): Promise<Finding> {
  const { endpoint } = eventEndpoints(config)(url);
  return (await canConnect(endpoint, config.healthCheckTimeoutSecs * 1000))
    ? ok(`publishes KV cache events on ${endpoint}`)
    : problem(
        `publishes no KV cache events on ${endpoint} (--kv-event-port, --kv-event-endpoints): start it with --kv-events-config; see docs/guides/kv-aware.md`,
      );
}

async function checkTokenizer(engine: Parameters<typeof probe>[0], encode: Encode): Promise<Finding> {
  const verdict = await probe(engine, encode);
  if (verdict.kind === 'same') return ok('its tokenizer gives the same ids as --tokenizer-path');
  if (verdict.kind === 'differs') return problem(differenceIn(verdict, engine));
  return note(`its tokenizer could not be compared with --tokenizer-path: ${verdict.reason}`);
}

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
      ? note(`does not report its weight version: the router can't detect that it restarts with old weights`)
      : ok(`weights "${facts.weightVersion}"`),
  );
  if (facts.hasPrefixCache === true) findings.push(ok('prefix caching is on'));
  else if (facts.hasPrefixCache === false) {
    const flag =
      facts.kind === 'sglang' ? 'start it without --disable-radix-cache' : 'start it with --enable-prefix-caching';
    findings.push(problem(`prefix caching is off, so keeping a trajectory on one engine gains nothing: ${flag}`));
  } else findings.push(note('does not report whether prefix caching is on'));
  if (facts.returnsRoutedExperts === false) {
    findings.push(note('returns no routed experts (needed for routing replay): --enable-return-routed-experts'));
  } else if (facts.returnsRoutedExperts === true) findings.push(ok('returns routed experts when asked'));
  if (facts.hasControlCalls === false) {
    findings.push(note('can not be paused or given new weights over HTTP: start it with VLLM_SERVER_DEV_MODE=1'));
  }
  return findings;
}

/** Whether a ZeroMQ endpoint accepts connections: `tcp://host:port` or `ipc:///path`. */
function canConnect(endpoint: string, timeoutMs: number): Promise<boolean> {
  const [, host = '', port = ''] = /^tcp:\/\/\[?(.+?)\]?:(\d+)$/.exec(endpoint) ?? [];
  const socket = port === '' ? connect(endpoint.replace(/^ipc:\/\//, '')) : connect(Number(port), host);
  return new Promise((resolve) => {
    const settle = (isOpen: boolean): void => {
      socket.destroy();
      resolve(isOpen);
    };
    socket.setTimeout(timeoutMs, () => settle(false));
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
}
