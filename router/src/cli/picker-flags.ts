import { type Command, InvalidArgumentError, Option } from 'commander';
import { type Values, fromText } from '../config/load.ts';
import type { RunFlags } from './run-router.ts';

/**
 * Flags of the reference pickers (gateway-api-inference-extension, `lwepp`; llm-d-router, `epp`). Others of theirs are options of the router:
 * `--pool-name`, `--pool-namespace`, `--pool-group`, `--endpoint-target-ports`.
 */
export interface PickerFlags {
  readonly grpcPort?: number;
  readonly grpcHealthPort?: number;
  readonly metricsPort?: number;
  readonly secureServing?: boolean;
  readonly healthChecking?: boolean;
  readonly endpointSelector?: string;
  readonly haEnableLeaderElection?: boolean;
}

function portOf(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) throw new InvalidArgumentError('Give a port.');
  return port;
}

function yesOrNo(text: string): boolean {
  if (text !== 'true' && text !== 'false') throw new InvalidArgumentError('Give true or false.');
  return text === 'true';
}

export function addPickerFlags(command: Command): Command {
  const flags = [
    new Option('--grpc-port <port>', 'As --picker-port (default: 9002).').argParser(portOf),
    new Option('--grpc-health-port <port>', 'As --picker-health-port (default: 9003).').argParser(portOf),
    new Option('--metrics-port <port>', 'As --prometheus-port (default: 9090).').argParser(portOf),
    new Option('--secure-serving <true|false>', 'false: as --picker-tls off (default: true).').argParser(yesOrNo),
    new Option('--health-checking [true|false]', 'As --picker-health-checking.').preset('true').argParser(yesOrNo),
    new Option(
      '--endpoint-selector <selector>',
      'As --service-discovery --selector: a label selector, for example "app=vllm,tier in (gpu,large)".',
    ),
    new Option('--ha-enable-leader-election [true|false]', 'As --leader-election auto.')
      .preset('true')
      .argParser(yesOrNo),
  ];
  for (const flag of flags) command.addOption(flag.helpGroup('Endpoint picker:'));
  return command;
}

/** Of `turnout picker`, where it differs from `turnout serve`. */
export const pickerDefaults: Values = { pickerPort: 9_002, pickerHealthPort: 9_003, prometheusPort: 9_090 };

/** The flags as those of `turnout serve`. An option of the router that is given too takes precedence. */
export function pickerFlags({
  grpcPort,
  grpcHealthPort,
  metricsPort,
  secureServing,
  healthChecking,
  endpointSelector,
  haEnableLeaderElection,
  ...flags
}: RunFlags & PickerFlags): RunFlags {
  return {
    ...(grpcPort === undefined ? {} : { pickerPort: grpcPort }),
    ...(grpcHealthPort === undefined ? {} : { pickerHealthPort: grpcHealthPort }),
    ...(metricsPort === undefined ? {} : { prometheusPort: metricsPort }),
    ...(secureServing === undefined ? {} : { pickerTls: secureServing ? 'on' : 'off' }),
    ...(healthChecking === undefined ? {} : { pickerHealthChecking: healthChecking }),
    ...(endpointSelector === undefined
      ? {}
      : { serviceDiscovery: true, selector: fromText('selector', endpointSelector) }),
    ...(haEnableLeaderElection === true ? { leaderElection: 'auto' } : {}),
    ...flags,
  };
}
