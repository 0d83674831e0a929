import { type Command, InvalidArgumentError, Option } from 'commander';
import type { RunFlags } from './run-router.ts';

/** Flags of the reference picker (gateway-api-inference-extension, `lwepp`), with its defaults. */
export interface PickerFlags {
  readonly grpcPort?: number;
  readonly grpcHealthPort?: number;
  readonly metricsPort?: number;
  readonly secureServing?: boolean;
}

function portOf(text: string): number {
  const port = Number(text);
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
  throw new InvalidArgumentError('Give a port, 0 to 65535.');
}

function yesOrNo(text: string): boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  throw new InvalidArgumentError('Give true or false.');
}

export function addPickerFlags(command: Command): Command {
  const flags = [
    new Option('--grpc-port <port>', 'Port of the picker, as --picker-port (default: 9002).').argParser(portOf),
    new Option('--grpc-health-port <port>', 'As --picker-health-port (default: 9003).').argParser(portOf),
    new Option('--metrics-port <port>', 'As --prometheus-port (default: 9090).').argParser(portOf),
    new Option('--secure-serving <true|false>', 'false: as --picker-tls off (default: true).').argParser(yesOrNo),
  ];
  for (const flag of flags) command.addOption(flag.helpGroup('Endpoint picker:'));
  return command;
}

/** The same as options of the router. */
export function pickerFlags({
  grpcPort,
  grpcHealthPort,
  metricsPort,
  secureServing,
  ...flags
}: RunFlags & PickerFlags): RunFlags {
  const given = {
    pickerPort: grpcPort ?? 9_002,
    pickerHealthPort: grpcHealthPort ?? 9_003,
    prometheusPort: metricsPort ?? 9_090,
    pickerTls: secureServing === false ? 'off' : 'on',
  };
  return { ...given, ...flags };
}
