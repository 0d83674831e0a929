import { deepEqual, equal, match } from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Command } from 'commander';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { type Values, loadConfig } from '../config/load.ts';
import { addOptions } from './add-options.ts';
import { addPickerFlags, pickerDefaults, pickerFlags } from './picker-flags.ts';

/** The configuration of a command line of `turnout picker`. */
function configOf(...args: string[]) {
  const command = addOptions(addPickerFlags(new Command().exitOverride().configureOutput({ writeErr: () => {} })));
  command.parse(args, { from: 'user' });
  const { config, ...flags } = command.opts<{ config?: string }>();
  return loadConfig(pickerFlags(flags) as Values, {}, config, pickerDefaults);
}

test('flags of the reference picker', () => {
  const config = configOf(
    ...'--grpc-port 9102 --grpc-health-port=9103 --metrics-port=9190 --secure-serving=false --health-checking'.split(
      ' ',
    ),
  );
  deepEqual([config.pickerPort, config.pickerHealthPort, config.prometheusPort], [9102, 9103, 9190]);
  deepEqual([config.pickerTls, config.pickerHealthChecking], ['off', true]);
});

test('pods by a pool, or by a selector and several ports; the election of a leader', () => {
  const pool = configOf('--pool-name=engines', '--pool-namespace=rl', '--pool-group=inference.networking.k8s.io');
  deepEqual([pool.poolName, pool.poolNamespace, pool.serviceDiscovery], ['engines', 'rl', false]);
  const config = configOf(
    '--endpoint-selector',
    'app=vllm,tier in (a,b)',
    '--endpoint-target-ports=3000,3001',
    '--ha-enable-leader-election',
  );
  equal(config.serviceDiscovery, true);
  deepEqual(config.selector, ['app=vllm', 'tier in (a,b)']);
  deepEqual(config.endpointTargetPorts, [3000, 3001]);
  equal(config.leaderElection, 'auto');
  equal(configOf('--ha-enable-leader-election=false').leaderElection, undefined);
});

test('the defaults are those of the reference picker', () => {
  const { pickerPort, pickerHealthPort, prometheusPort, pickerTls, pickerHealthChecking } = configOf();
  deepEqual([pickerPort, pickerHealthPort, prometheusPort], [9002, 9003, 9090]);
  deepEqual([pickerTls, pickerHealthChecking], ['on', false]);
});

test('the file of --config takes precedence over the defaults, and flags over the file', (t) => {
  const file = join(temporaryFolder(t), 'turnout.yaml');
  writeFileSync(file, 'picker-port: 9102\npicker-tls: off\nprometheus-port: 9190\n');
  const config = configOf('--config', file, '--metrics-port', '9290');
  deepEqual([config.pickerPort, config.pickerTls, config.prometheusPort], [9102, 'off', 9290]);
});

test('a wrong value is refused', () => {
  for (const [args, why] of [
    [['--secure-serving', 'maybe'], /Give true or false/],
    [['--grpc-port', '70000'], /Give a port/],
    [['--pool-group', 'other'], /pool-group/],
  ] as const) {
    let message = '';
    try {
      configOf(...args);
    } catch (error) {
      ({ message } = error as Error);
    }
    match(message, why);
  }
});
