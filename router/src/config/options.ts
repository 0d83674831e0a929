import * as z from 'zod';
import { discoveryOptions } from './options/discovery.ts';
import { healthOptions } from './options/health.ts';
import { limitsOptions } from './options/limits.ts';
import { observabilityOptions } from './options/observability.ts';
import { pickerOptions } from './options/picker.ts';
import { pluginsOptions } from './options/plugins.ts';
import { retriesOptions } from './options/retries.ts';
import { routingOptions } from './options/routing.ts';
import { securityOptions } from './options/security.ts';
import { serverOptions } from './options/server.ts';
import { swapOptions } from './options/swap.ts';
import { tinkerOptions } from './options/tinker.ts';
import { trajectoriesOptions } from './options/trajectories.ts';
import { workersOptions } from './options/workers.ts';
import {
  captureProblem,
  deploymentsProblem,
  discoveryProblem,
  pickerProblem,
  portsProblem,
} from './option-problems.ts';
import { pairsProblem } from './pairs.ts';

/**
 * Every option of `turnout serve`, once: name (camelCase here; `--kebab-case`, `TURNOUT_UPPER_CASE` and YAML keys
 * follow), type, default, help. Types, help, environment, file and reference are generated from this list.
 *
 * The names are those of SGLang's router if it has the option, else those of other routers.
 */
export const options = {
  ...serverOptions,
  ...workersOptions,
  ...discoveryOptions,
  ...routingOptions,
  ...retriesOptions,
  ...healthOptions,
  ...limitsOptions,
  ...pluginsOptions,
  ...swapOptions,
  ...securityOptions,
  ...trajectoriesOptions,
  ...tinkerOptions,
  ...pickerOptions,
  ...observabilityOptions,
} as const;

export type OptionName = keyof typeof options;

const shape = Object.fromEntries(Object.entries(options).map(([name, spec]) => [name, spec.schema])) as {
  [Name in OptionName]: (typeof options)[Name]['schema'];
};

export const configSchema = z.strictObject(shape).superRefine((config, context) => {
  if ((config.tlsCertPath === undefined) !== (config.tlsKeyPath === undefined)) {
    context.addIssue({ code: 'custom', message: 'give both --tls-cert-path and --tls-key-path, or neither' });
  }
  if ((config.clientCertPath === undefined) !== (config.clientKeyPath === undefined)) {
    context.addIssue({ code: 'custom', message: 'give both --client-cert-path and --client-key-path, or neither' });
  }
  if (config.dpAware && config.intraNodeDataParallelSize === 1 && config.disableHealthCheck) {
    context.addIssue({
      code: 'custom',
      message:
        '--dp-aware asks engines with their first health check, and --disable-health-check is set: give --intra-node-data-parallel-size, or the ranks themselves (http://host:port@0-3)',
    });
  }
  for (const check of [
    portsProblem,
    discoveryProblem,
    pairsProblem,
    deploymentsProblem,
    captureProblem,
    pickerProblem,
  ]) {
    const problem = check(config);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  }
  if (config.tlsClientCaPath !== undefined && config.tlsCertPath === undefined) {
    context.addIssue({
      code: 'custom',
      message: '--tls-client-ca-path needs --tls-cert-path: clients present certificates over TLS only',
    });
  }
});

export type Config = z.output<typeof configSchema>;

/** `workerUrls` → `worker-urls` */
export const kebab = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
export const envName = (name: string): string => `TURNOUT_${kebab(name).replaceAll('-', '_').toUpperCase()}`;
