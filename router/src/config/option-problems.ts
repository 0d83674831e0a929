import type { Config } from './options.ts';
import { pairKind } from './pairs.ts';

/** The plugins whose turns are stored. */
const CAPTURING = '--plugin radix-tree, --plugin chat-sessions or --capture-chat';

const captures = ({ captureChat, plugin }: Config): boolean =>
  captureChat || plugin.some((entry) => /^(radix-tree|chat-sessions|feed)(:|$)/.test(entry));

/** @returns what is wrong with the options for what is stored; null: nothing */
export const captureProblem = (config: Config): string | null =>
  config.captureRequired && !captures(config)
    ? `--capture-required: nothing is captured without a plugin that captures: give ${CAPTURING}`
    : null;

/** @returns a message for each option that has no effect */
export function withoutEffect(config: Config): string[] {
  const lines: string[] = [];
  if (config.evictionIntervalSecs !== undefined) {
    lines.push('--eviction-interval-secs has no effect: --max-tree-size is enforced at every request');
  }
  // SGLang's decode engines compute the prefill rank from the bootstrap room; an explicit rank is not tested with them.
  if (pairKind(config) === 'sglang') {
    const why =
      'has no effect with --pd-disaggregation: in a prefill/decode pair the engine, not the router, assigns DP ranks';
    if (config.dpAware) lines.push(`--dp-aware ${why}`);
    if (config.intraNodeDataParallelSize > 1) lines.push(`--intra-node-data-parallel-size ${why}`);
  }
  if (!captures(config)) {
    for (const [flag, isSet] of Object.entries({
      '--capture-bodies': config.captureBodies,
      '--store': config.store !== undefined,
    })) {
      if (isSet) lines.push(`${flag} has no effect without a plugin that captures: ${CAPTURING}`);
    }
  }
  if (config.tokenizerPath !== undefined && config.plugin.length === 0 && !config.captureChat && !config.tinker)
    lines.push(`--tokenizer-path has no effect without a plugin that captures, or --tinker: ${CAPTURING}`);
  if (config.maxWeightStaleness !== undefined && config.swapSnapshots === undefined && config.deployments.length === 0)
    lines.push('--max-weight-staleness has no effect without weight swaps: --swap-snapshots');
  for (const [flag, value] of Object.entries({
    '--tinker-trainer': config.tinkerTrainer,
    '--tinker-weights': config.tinkerWeights,
  })) {
    if (!config.tinker && value !== undefined) lines.push(`${flag} has no effect without --tinker`);
  }
  if (config.abortStale && config.maxWeightStaleness === undefined) {
    lines.push('--abort-stale has no effect without --max-weight-staleness');
  }
  return lines;
}

/** @returns what is wrong with the options for weight swaps; null: nothing */
export function deploymentsProblem({
  deployments,
  swapSnapshots,
}: Pick<Config, 'deployments' | 'swapSnapshots'>): string | null {
  if (deployments.length === 0) return null;
  if (swapSnapshots !== undefined) return 'give either --swap-snapshots or deployments, not both';
  const names = deployments.map(({ deployment }) => deployment);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) return `deployments has ${twice} twice`;
  // Deployments of the same workers share their weights, so they must agree on which workers these are.
  const sets = deployments.map(({ workers }) => (workers === 'all' ? null : workers.toSorted()));
  const overlaps = sets.some((one) =>
    sets.some((other) =>
      one === null || other === null
        ? one !== other
        : String(one) !== String(other) && one.some((url) => other.includes(url)),
    ),
  );
  return overlaps ? 'deployments with workers in common must list the same workers' : null;
}

/** @returns what is wrong with the ports; null: nothing */
export function portsProblem(config: Config): string | null {
  const ports = [
    { flag: '--port', port: config.port, host: config.host },
    { flag: '--admin-port', port: config.adminPort ?? 0, host: config.adminHost },
    { flag: '--prometheus-port', port: config.prometheusPort, host: config.prometheusHost },
    ...(config.pickerPort === undefined
      ? []
      : [
          { flag: '--picker-port', port: config.pickerPort, host: config.pickerHost },
          { flag: '--picker-health-port', port: config.pickerHealthPort, host: config.pickerHost },
        ]),
  ].filter(({ port }) => port !== 0);
  for (const [i, one] of ports.entries()) {
    const isSame = ({ port, host }: typeof one): boolean =>
      port === one.port && (host === one.host || [host, one.host].some((each) => each === '0.0.0.0' || each === '::'));
    const other = ports.slice(i + 1).find(isSame);
    if (other !== undefined) return `${one.flag} and ${other.flag} are both ${one.port}: each needs a port of its own`;
  }
  return null;
}

type Discovery = Pick<
  Config,
  | 'serviceDiscovery'
  | 'poolName'
  | 'poolNamespace'
  | 'endpointTargetPorts'
  | 'selector'
  | 'prefillSelector'
  | 'decodeSelector'
  | 'pdDisaggregation'
  | 'vllmPdDisaggregation'
  | 'kvConnector'
>;

/** @returns what is wrong with the options for service discovery; null: nothing */
export function discoveryProblem(config: Discovery): string | null {
  const { serviceDiscovery, selector, prefillSelector, decodeSelector } = config;
  const selectors = {
    '--selector': selector,
    '--prefill-selector': prefillSelector,
    '--decode-selector': decodeSelector,
  };
  const given = Object.entries(selectors).flatMap(([flag, labels]) => (labels.length > 0 ? [flag] : []));
  const { poolName, poolNamespace, endpointTargetPorts } = config;
  if (poolName !== undefined) {
    const other = [
      ...(serviceDiscovery ? ['--service-discovery'] : []),
      ...given,
      ...(endpointTargetPorts.length > 0 ? ['--endpoint-target-ports'] : []),
    ];
    if (other.length > 0)
      return `give either --pool-name, whose InferencePool has the selector and the ports, or ${other[0]}`;
    return pairKind(config) === null
      ? null
      : '--pool-name names engines that serve whole requests: for pairs give --service-discovery with --prefill-selector and --decode-selector';
  }
  if (poolNamespace !== undefined) return '--pool-namespace has no effect without --pool-name';
  if (!serviceDiscovery) {
    const alone = [...given, ...(endpointTargetPorts.length > 0 ? ['--endpoint-target-ports'] : [])];
    return alone.length === 0 ? null : `${alone[0]} has no effect without --service-discovery`;
  }
  if (pairKind(config) === null) {
    const ofRole = given.find((flag) => flag !== '--selector');
    if (ofRole !== undefined)
      return `${ofRole} needs --pd-disaggregation (SGLang) or --vllm-pd-disaggregation: without them engines serve whole requests`;
    return given.length > 0
      ? null
      : '--service-discovery needs --selector: which pods are engines, for example --selector app=vllm';
  }
  if (selector.length > 0)
    return '--selector names engines that serve whole requests: for pairs give --prefill-selector and --decode-selector';
  if (given.length === 0)
    return '--service-discovery needs --prefill-selector and --decode-selector: which pods are engines of which role';
  const isSame = given.length === 2 && String(prefillSelector.toSorted()) === String(decodeSelector.toSorted());
  return isSame ? '--prefill-selector and --decode-selector are the same: each must match other pods' : null;
}

/** @returns what an endpoint picker cannot do, because the bytes do not pass through it; null: nothing */
export function pickerProblem(config: Config): string | null {
  if (config.pickerPort === undefined)
    return config.leaderElection === undefined ? null : '--leader-election has no effect without --picker-port';
  // A replica that does not know of a swap would load the weights before it again.
  if (config.leaderElection !== undefined && (config.swapSnapshots !== undefined || config.deployments.length > 0))
    return '--leader-election: replicas do not share which weights the engines must have, so weight swaps (--swap-snapshots, deployments) need a single picker: leave --leader-election out, and give it --data-dir';
  const needsBytes = Object.entries({
    'prefill/decode pairs': pairKind(config) !== null,
    '--dp-aware': config.dpAware,
    '--intra-node-data-parallel-size': config.intraNodeDataParallelSize > 1,
    '--resume': config.resume !== 'off',
    '--capture-chat': config.captureChat,
    '--tinker': config.tinker,
    '--plugin': config.plugin.length > 0,
  }).flatMap(([flag, isSet]) => (isSet ? [flag] : []));
  if (needsBytes.length === 0) return null;
  return `--picker-port only says where requests go; ${needsBytes.join(', ')} needs the bytes of requests and responses: put a router behind the gateway for these workers`;
}
