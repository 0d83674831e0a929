import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { type OptionName, kebab, options } from '../../router/src/config/options.ts';
import { type OptionSpec, port } from '../../router/src/config/options/option.ts';

/** Writes `values.schema.json` of the chart, from the option list: `npm run docs`. A test fails when it differs. */

/** The chart sets these itself: addresses, ports, the volume, and keys, which a ConfigMap must not have. */
const ofTheChart: ReadonlySet<string> = new Set<OptionName>([
  'host',
  'port',
  'reusePort',
  'adminHost',
  'adminPort',
  'prometheusHost',
  'prometheusPort',
  'dataDir',
  'apiKey',
  'apiKeyFile',
  'adminApiKey',
  'adminApiKeyFile',
  'workerApiKey',
  'pickerHost',
  'pickerPort',
  'pickerHealthPort',
  'poolName',
  'leaderElection',
]);

const optionValues = z.strictObject(
  Object.fromEntries(
    Object.entries<OptionSpec>(options)
      .filter(([name]) => !ofTheChart.has(name))
      .map(([name, { schema, help }]) => {
        // The template computes terminationGracePeriodSeconds from this one, so the values name it.
        const value = name === 'shutdownGracePeriodSecs' ? z.number().min(0) : schema.optional();
        return [kebab(name), value.meta({ description: help })];
      }),
  ),
);

const text = z.string();
const texts = z.record(text, text);
/** Passed on as it is; the API server checks it. */
const object = z.record(text, z.unknown());
const objects = z.array(object);

const values = z.strictObject({
  global: object.optional(),
  image: z.strictObject({
    repository: text.min(1),
    tag: text,
    pullPolicy: z.enum(['Always', 'IfNotPresent', 'Never']),
  }),
  imagePullSecrets: objects,
  options: optionValues,
  extraArgs: z.array(text),
  extraEnv: objects,
  picker: z.strictObject({
    enabled: z.boolean(),
    replicas: z.int().min(1),
    port: port.min(1),
    healthPort: port.min(1),
    inferencePool: z.strictObject({
      create: z.boolean(),
      name: text,
      matchLabels: texts,
      targetPorts: z.array(port.min(1)).min(1).max(8),
      failureMode: z.enum(['FailClose', 'FailOpen']),
    }),
  }),
  podDisruptionBudget: z.strictObject({ enabled: z.boolean() }),
  engineAutoscaling: z.strictObject({
    enabled: z.boolean(),
    scaleTargetRef: texts,
    minReplicas: z.int().min(1),
    maxReplicas: z.int().min(1),
    waitingPerEngine: z.int().min(1),
    inFlightPerEngine: z.int().min(1),
    metricLabels: texts,
    behavior: object,
  }),
  ports: z.strictObject({ http: port.min(1), admin: port, metrics: port.min(1) }),
  keys: z.strictObject({ existingSecret: text, apiKeys: text, adminKeys: text, workerKey: text }),
  persistence: z.strictObject({
    enabled: z.boolean(),
    size: text.min(1),
    accessModes: z.array(text).min(1),
    storageClassName: text.nullable().optional(),
    existingClaim: text,
  }),
  service: z.strictObject({ type: z.enum(['ClusterIP', 'NodePort', 'LoadBalancer']), annotations: texts }),
  serviceAccount: z.strictObject({ create: z.boolean(), name: text, annotations: texts }),
  rbac: z.strictObject({ create: z.boolean() }),
  restartOnChange: z.boolean(),
  preStopSleepSeconds: z.int().min(0).max(3600),
  resources: object,
  nodeSelector: texts,
  tolerations: objects,
  affinity: object,
  priorityClassName: text,
  podAnnotations: texts,
  podLabels: texts,
  extraVolumes: objects,
  extraVolumeMounts: objects,
  serviceMonitor: z.strictObject({ enabled: z.boolean(), interval: text, labels: texts }),
  prometheusRule: z.strictObject({ enabled: z.boolean(), labels: texts }),
  grafanaDashboard: z.strictObject({ enabled: z.boolean(), labels: texts, annotations: texts }),
  networkPolicy: z.strictObject({
    enabled: z.boolean(),
    http: objects,
    admin: objects,
    metrics: objects,
    picker: objects,
    egress: objects,
  }),
});

/** Helm is a Go program: Go's regular expressions have no lookahead. The router itself checks these values. */
function override({ jsonSchema }: { jsonSchema: { pattern?: string } }): void {
  if (jsonSchema.pattern?.includes('(?') === true) delete jsonSchema.pattern;
}

const schemaFile = (): string =>
  `${JSON.stringify(z.toJSONSchema(values, { io: 'input', target: 'draft-7', override }), null, 2)}\n`;

/** The files by path in the checkout. */
export const chartFiles: Readonly<Record<string, () => string>> = {
  'deploy/helm/turnout/values.schema.json': schemaFile,
};

if (import.meta.main) {
  for (const [path, content] of Object.entries(chartFiles))
    writeFileSync(join(import.meta.dirname, '../..', path), content());
}
