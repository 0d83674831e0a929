import { z } from 'zod';
import { breakerOptions } from './options/breaker.ts';
import { discoveryOptions } from './options/discovery.ts';
import { controlOptions } from './options/control.ts';
import { healthOptions } from './options/health.ts';
import { limitsOptions } from './options/limits.ts';
import { observabilityOptions } from './options/observability.ts';
import { pluginsOptions } from './options/plugins.ts';
import { retriesOptions } from './options/retries.ts';
import { routingOptions } from './options/routing.ts';
import { securityOptions } from './options/security.ts';
import { serverOptions } from './options/server.ts';
import { tokensOptions } from './options/tokens.ts';
import { trajectoriesOptions } from './options/trajectories.ts';
import { tlsOptions } from './options/tls.ts';
import { workersOptions } from './options/workers.ts';
import { discoveryProblem } from './discovery-problem.ts';
import { pairsProblem } from './pairs.ts';

/**
 * Every option of `turnout serve`, once: name (camelCase here; `--kebab-case`, `TURNOUT_UPPER_CASE` and YAML keys follow),
 * type, default, help. Types, help, environment, file and reference are made from this list.
 *
 * Names are those of SGLang's router where it has the option, then those of the other routers in use.
 */
export const options = {
  ...serverOptions,
  ...workersOptions,
  ...discoveryOptions,
  ...routingOptions,
  ...controlOptions,
  ...retriesOptions,
  ...breakerOptions,
  ...healthOptions,
  ...limitsOptions,
  ...pluginsOptions,
  ...securityOptions,
  ...tokensOptions,
  ...trajectoriesOptions,
  ...tlsOptions,
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
  for (const problem of [discoveryProblem(config), pairsProblem(config)])
    if (problem !== '') context.addIssue({ code: 'custom', message: problem });
  if (config.tlsClientCaPath !== undefined && config.tlsCertPath === undefined) {
    context.addIssue({
      code: 'custom',
      message: '--tls-client-ca-path needs --tls-cert-path: clients show certificates over TLS only',
    });
  }
});

export type Config = z.output<typeof configSchema>;

/** `workerUrls` → `worker-urls` */
export const kebab = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
export const envName = (name: string): string => `TURNOUT_${kebab(name).replaceAll('-', '_').toUpperCase()}`;
