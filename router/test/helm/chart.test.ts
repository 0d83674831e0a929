import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, suite, test } from 'node:test';
import { parseAllDocuments, stringify } from 'yaml';
import * as z from 'zod';
import type { OptionSpec } from '../../src/config/options/option.ts';
import { kebab, options } from '../../src/config/options.ts';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { turnout } from '../cli/turnout.ts';
import { whyNotBuilt } from '../harness/built.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { type Manifest, chart, helm, kubernetes, manifests, one, podOf } from './helm.ts';

const root = join(import.meta.dirname, '../../..');
const discovery = ['--set', 'options.service-discovery=true', '--set', 'options.selector={app=engine}'];
const keys = ['--set', 'keys.existingSecret=turnout-keys'];
const everything = [
  ...discovery,
  ...keys,
  ...['keys.workerKey=worker.key', 'ports.admin=30001', 'serviceMonitor.enabled=true', 'grafanaDashboard.enabled=true']
    .concat(['prometheusRule.enabled=true', 'prometheusRule.labels.release=prometheus'])
    .concat(['networkPolicy.enabled=true', 'persistence.storageClassName=fast', 'image.tag=test', 'podLabels.team=rl'])
    .flatMap((value) => ['--set', value]),
];

/** The refusal of a command line, in one line. */
async function refusal(values: readonly string[]): Promise<string> {
  try {
    await manifests(...values);
  } catch (error) {
    return (error as { stderr: string }).stderr.replaceAll(/\s+/g, ' ');
  }
  throw new Error(`${values.join(' ')} was accepted`);
}

/** The router's command line of a pod, with the folders of the pod below a temporary one. */
function commandOf(t: TestContext, all: readonly Manifest[]): string[] {
  const folder = temporaryFolder(t);
  for (const name of ['config', 'keys', 'data']) mkdirSync(join(folder, name));
  for (const name of ['data.keys', 'admin.keys']) writeFileSync(join(folder, 'keys', name), `key-${name}\n`);
  const inFolder = (text: string): string =>
    text.replaceAll('/etc/turnout', folder).replaceAll('data-dir: /data', `data-dir: ${folder}/data`);
  writeFileSync(join(folder, 'config/turnout.yaml'), inFolder(one(all, 'ConfigMap').data!['turnout.yaml']!));
  return podOf(all).containers[0].args.map(inFolder);
}

const skip = await whyNotBuilt('helm/build.sh', 'helm');

suite('the Helm chart', { skip }, () => {
  for (const [name, values] of Object.entries({ 'no values': [], discovery, everything })) {
    test(`helm lint has nothing to say about the chart with ${name}`, async () => {
      const text = await helm('lint', '--strict', chart, ...kubernetes, ...values);
      assert.match(text, /1 chart\(s\) linted, 0 chart\(s\) failed/);
      assert.doesNotMatch(text, /\[(WARNING|ERROR)\]/);
    });
  }

  test('a value that is wrong is refused with its name', async () => {
    const wrong = {
      'options.polcy=rollout': /options.*polcy/,
      'options.queue-size=many': /options\.queue-size|options\/queue-size/,
      'options.retry-hung=maybe': /retry-hung/,
      'options.port=1': /options.*port/,
      'options.api-key=secret': /options.*api-key/,
      'options.log-level=loud': /log-level.*(debug|critical)/,
      'options.selector=app=engine': /selector.*array/,
      'options.shutdown-grace-period-secs=null': /shutdown-grace-period-secs/,
      'ports.http=0': /ports.http/,
      'replicas=2': /replicas/,
    };
    for (const [value, expected] of Object.entries(wrong))
      assert.match(await refusal(['--set', value]), expected, value);
  });

  test('every option with its default is accepted by the schema, rendered, and accepted by the router', async (t) => {
    const schema = JSON.parse(readFileSync(join(chart, 'values.schema.json'), 'utf8')) as {
      properties: { options: { properties: Record<string, unknown> } };
    };
    const known = Object.keys(schema.properties.options.properties);
    const given = Object.entries<OptionSpec>(options).flatMap(([name, { schema }]) =>
      schema instanceof z.ZodDefault && known.includes(kebab(name)) ? [[kebab(name), schema.def.defaultValue]] : [],
    );
    assert.ok(given.length > 80, `${given.length} options`);
    const file = join(temporaryFolder(t), 'values.yaml');
    // Helm reads YAML 1.1, in which off is a boolean unless it is quoted.
    writeFileSync(file, stringify({ options: Object.fromEntries(given) as object }, { version: '1.1' }));
    const all = await manifests('--values', file);
    const [written] = parseAllDocuments(one(all, 'ConfigMap').data!['turnout.yaml']!);
    const rendered = written!.toJS() as Record<string, unknown>;
    for (const [name, value] of given) assert.deepEqual(rendered[String(name)], value, String(name));
    const run = turnout(t, [...commandOf(t, all), '--check']);
    assert.equal(await run.ended, 0, run.output());
    assert.match(run.output(), /The configuration is valid/);
  });

  test('a router with the rendered file and arguments serves what the probes ask', async (t) => {
    const engine = await startSimEngine({ timeScale: 0 });
    t.after(() => engine.close());
    const worker = `options.worker-urls={${engine.url}}`;
    const all = await manifests(
      ...keys,
      '--set',
      worker,
      '--set',
      'ports.admin=30001',
      '--set',
      'extraArgs={--worker-header}',
    );
    const anyPorts = ['--host=127.0.0.1', '--admin-host=127.0.0.1', '--prometheus-host=127.0.0.1'].concat(
      '--port=0',
      '--admin-port=0',
      '--prometheus-port=0',
    );
    const run = turnout(t, [...commandOf(t, all), ...anyPorts]);
    const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
    const [, metrics] = await run.says(/metrics on (http:\/\/127\.0\.0\.1:\d+)/);
    const { livenessProbe, readinessProbe } = podOf(all).containers[0];
    assert.deepEqual([livenessProbe.httpGet!.port, readinessProbe.httpGet!.port], ['metrics', 'metrics']);
    const statusOf = async (path: string): Promise<number> => (await fetch(path)).status;
    assert.equal(await statusOf(metrics + livenessProbe.httpGet!.path), 200);
    await until('the router is ready', async () => (await statusOf(metrics + readinessProbe.httpGet!.path)) === 200);
    assert.equal(await statusOf(`${url}/v1/models`), 401, 'the keys of the secret are in force');
  });

  test('the pod outlives the drain, runs without rights, and has the permissions of deploy/kubernetes', async () => {
    const all = await manifests(...everything, '--set', 'options.shutdown-grace-period-secs=600');
    const pod = podOf(all);
    assert.equal(pod.terminationGracePeriodSeconds, 625);
    assert.equal(pod.securityContext['runAsNonRoot'], true);
    assert.deepEqual(pod.containers[0].securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    assert.deepEqual(
      pod.containers[0].ports.map(({ name }) => name),
      ['http', 'admin', 'metrics'],
    );
    const plain = parseAllDocuments(readFileSync(join(root, 'deploy/kubernetes/rbac.yaml'), 'utf8'))
      .map((document) => document.toJS() as Manifest)
      .find(({ kind }) => kind === 'Role');
    assert.deepEqual(one(all, 'Role').rules, plain!.rules);
    assert.equal(podOf(await manifests()).automountServiceAccountToken, false);
    assert.equal(pod.automountServiceAccountToken, true);
    assert.equal(pod.enableServiceLinks, false, 'TURNOUT_PORT of a service is not that of the router');
  });

  test('without discovery there are no permissions; for all namespaces they are of the cluster', async () => {
    const kinds = async (...values: string[]): Promise<string> =>
      (await manifests(...values))
        .map(({ kind }) => kind)
        .toSorted()
        .join(' ');
    assert.equal(await kinds(), 'ConfigMap Service ServiceAccount StatefulSet');
    assert.match(await kinds(...discovery), /Role RoleBinding/);
    const everywhere = await manifests(...discovery, '--set', 'options.service-discovery-namespace=*');
    assert.equal(one(everywhere, 'ClusterRole').metadata.name, 'rl-turnout');
    const elsewhere = await manifests(...discovery, '--set', 'options.service-discovery-namespace=engines');
    assert.equal(one(elsewhere, 'RoleBinding').metadata.namespace, 'engines');
  });

  test('an upgrade replaces a pod that is not ready', async () => {
    assert.equal(one(await manifests(), 'StatefulSet').spec!['podManagementPolicy'], 'Parallel');
  });

  test('the notes have a command that works with the values', async (t) => {
    const copy = temporaryFolder(t);
    cpSync(chart, copy, { recursive: true, dereference: true });
    // Helm prints notes of installations only.
    const notes = readFileSync(join(chart, 'templates/NOTES.txt'), 'utf8');
    writeFileSync(join(copy, 'templates/_notes.tpl'), `{{ define "notes" }}${notes}{{ end }}`);
    const manifest =
      'apiVersion: v1\nkind: Secret\nmetadata: { name: notes }\ndata:\n  text: {{ include "notes" . | quote }}';
    writeFileSync(join(copy, 'templates/notes.yaml'), manifest);
    const command = async (...values: string[]): Promise<string | undefined> => {
      const text = await helm('template', 'turnout', copy, '--namespace', 'rl', ...kubernetes, ...values);
      const all = parseAllDocuments(text).map((document) => document.toJS() as Manifest | null);
      const { data } = all.find((each) => each?.kind === 'Secret')!;
      return /What it does now: (.*)/.exec(data!['text']!)?.[1];
    };
    const exec = 'kubectl -n rl exec turnout-0 --';
    assert.equal(await command(), `${exec} turnout top http://127.0.0.1:30000 --once`);
    assert.equal(
      await command(...keys, '--set', 'ports.admin=30001', '--set', 'options.tls-cert-path=/tls/cert.pem'),
      `${exec} sh -c 'TURNOUT_ADMIN_API_KEY=$(grep -m 1 "^[^#]" /etc/turnout/keys/admin.keys) turnout top https://turnout.rl:30001 --once'`,
    );
  });

  test('the ConfigMap for Grafana has the dashboard of deploy/grafana', async () => {
    const all = await manifests('--set', 'grafanaDashboard.enabled=true');
    const { data } = all.find(({ metadata }) => metadata.name === 'turnout-dashboard')!;
    assert.equal(data!['turnout.json'], readFileSync(join(root, 'deploy/grafana/turnout.json'), 'utf8'));
  });

  test('the PrometheusRule has the alerts of deploy/prometheus', async () => {
    assert.ok((await manifests()).every(({ kind }) => kind !== 'PrometheusRule'));
    const { metadata, spec } = one(await manifests(...everything), 'PrometheusRule');
    assert.equal((metadata as unknown as { labels: Record<string, string> }).labels['release'], 'prometheus');
    const plain = parseAllDocuments(readFileSync(join(root, 'deploy/prometheus/turnout-alerts.yaml'), 'utf8'));
    assert.deepEqual(spec, plain[0]!.toJS());
  });

  test('a change of an option restarts the pod, unless the values say otherwise', async () => {
    const template = async (...values: string[]): Promise<unknown> =>
      one(await manifests(...values), 'StatefulSet').spec;
    const changed = ['--set', 'options.queue-size=7'];
    assert.notDeepEqual(await template(), await template(...changed));
    const never = ['--set', 'restartOnChange=false'];
    assert.deepEqual(await template(...never), await template(...never, ...changed));
  });
});
