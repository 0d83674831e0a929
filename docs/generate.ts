import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { type AliasFlag, type Peer, type Values, readAlias } from '../router/src/config/alias/alias.ts';
import { sglang } from '../router/src/config/alias/sglang.ts';
import { slime } from '../router/src/config/alias/slime.ts';
import { vllm } from '../router/src/config/alias/vllm.ts';
import { endpoints } from '../router/src/admin/endpoints.ts';
import type { OptionSpec } from '../router/src/config/options/option.ts';
import { envName, kebab, options } from '../router/src/config/options.ts';
import { policyNames } from '../router/src/config/options/policy-names.ts';
import { controls } from '../router/src/engines/controls.ts';
import { type ErrorCode, errorTable, isRetryable } from '../router/src/kit/errors.ts';
import { metrics } from '../router/src/observe/metrics.ts';
import { peerMetrics } from '../router/src/observe/metrics/peers.ts';
import { phases } from '../router/src/phases/table.ts';
import { feedMetrics } from '../router/src/recorder/tap/feed/metrics.ts';
import { feedOptions } from '../router/src/recorder/tap/feed/options.ts';
import { chatMetrics, treeCounters, treeFailures, treeGauges } from '../router/src/recorder/tap/metrics.ts';

/** Writes `docs/reference/` from the tables in the code: `npm run docs`. A test fails when they differ. */

const cell = (text: string): string => text.replaceAll('|', '\\|');
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.map(cell).join(' | ')} |`).join('\n');

function defaultOf({ schema }: OptionSpec): string {
  const fallback: unknown = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;
  if (fallback === undefined || (Array.isArray(fallback) && fallback.length === 0)) return 'none';
  return fallback === false ? 'off' : `\`${JSON.stringify(fallback).replaceAll('"', '')}\``;
}

const specs = Object.entries(options) as [string, OptionSpec][];
const groups = [...new Set(specs.map(([, { group }]) => group))];
const nameOf = (name: string): string => `\`--${kebab(name)}\``;

function optionsPage(): string {
  const common = specs.filter(([, { isCommon }]) => isCommon === true).map(([name]) => nameOf(name));
  const sections = groups.map((group) => {
    const rows = specs
      .filter(([, spec]) => spec.group === group)
      .map(([name, spec]) => [
        spec.isFileOnly === true
          ? `\`${kebab(name)}\` (in the file of --config)`
          : `\`--${kebab(name)}${spec.value === '' ? '' : ` ${spec.value}`}\``,
        defaultOf(spec),
        spec.needsRestart === undefined ? 'reload' : spec.needsRestart === true ? 'restart' : 'restart*',
        spec.help,
      ]);
    return `## ${group}\n\n${table(['option', 'default', 'change', 'meaning'], rows)}`;
  });
  return `# Options of \`turnout serve\`

Generated from \`router/src/config/options.ts\`. Every option can also be set in the environment (\`--${kebab('workerUrls')}\` is
\`${envName('workerUrls')}\`) and in the YAML file of \`--config\` (\`worker-urls: [http://host:8000]\`;
[every option as a commented file](turnout.example.yaml)). Flags override the environment, the environment overrides the file.
The elements of a list are separated by spaces or commas; a list as JSON may have elements with spaces and commas:
\`${envName('adminApiKey')}='["a-key,with-a-comma"]'\`.

Most users need: ${common.join(', ')}. \`turnout serve --help\` lists these, \`turnout serve --help all\` every option.
\`turnout serve --check\` validates the options and what the start reads, then exits. \`turnout serve --print-config\` prints the
values in force and where each comes from.

The column "change" says whether a new value needs a reload (SIGHUP) or a restart of the router. A reload logs a warning with the options
that need a restart. restart\\*: a reload reads the contents of the file again; setting or unsetting the option needs a restart.

${sections.join('\n\n')}

Policies: ${policyNames.map((name) => `\`${name}\``).join(', ')}; \`-\` and \`_\` are equivalent in their names.
`;
}

/** A comment of at most 100 characters a line. */
const commented = (text: string): string => text.replace(/(.{1,98})(?:\s+|$)/g, '## $1\n');

function exampleFile(): string {
  const sections = groups.map((group) => {
    const settings = specs
      .filter(([, spec]) => spec.group === group)
      .map(([name, { help, schema }]) => {
        const fallback: unknown = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;
        const value = fallback === undefined ? '' : ` ${JSON.stringify(fallback)}`;
        return `${commented(help)}# ${kebab(name)}:${value}\n`;
      });
    return `### ${group}\n\n${settings.join('\n')}`;
  });
  return `### Every option of turnout serve with its default: turnout serve --config turnout.yaml
### Remove the "# " of a line to set it. Generated from router/src/config/options.ts.

${sections.join('\n')}`;
}

function metricsPage(): string {
  const listed = (labels: readonly string[] = []): string => labels.map((label) => `\`${label}\``).join(', ');
  const rows = metrics.map(({ name, type, labels, help }) => [`\`${name}\``, type, listed(labels), help]);
  const ofPlugin = (plugin: string, type: string, table: readonly (readonly [string, string])[]) =>
    table.map(([name, help]) => [`\`${name}\``, type, plugin, help]);
  const pluginRows = [
    ...ofPlugin('radix-tree', 'gauge', Object.values(treeGauges)),
    ...ofPlugin('radix-tree', 'counter', [...Object.values(treeCounters), ...Object.values(treeFailures)]),
    ...ofPlugin('chat-sessions', 'counter', Object.values(chatMetrics)),
    ...feedMetrics.map(({ name, type, labels = [], help }) => [
      `\`${name}\``,
      type,
      'feed',
      labels.length === 0 ? help : `${help} Label: ${listed(labels)}.`,
    ]),
  ];
  const peerRows = Object.entries(peerMetrics).flatMap(([peer, table]) =>
    table.map(({ name, type, labels, help }) => [`\`${name}\``, type, peer, listed(labels), help]),
  );
  return `# Metrics

Generated from \`router/src/observe/metrics/\`. \`GET /metrics\` returns them as Prometheus text on the main port and on
\`--prometheus-port\`. Histograms also have the label \`le\`; summaries have no quantiles, only a sum and a count.

${table(['metric', 'type', 'labels', 'meaning'], rows)}

## Metrics of built-in plugins

${table(['metric', 'type', 'plugin', 'meaning'], pluginRows)}

## Names of other routers

With \`--metrics-compat sglang\` or \`vllm\`, which the commands of these routers set, the same page also has the metrics of sglang-router 0.3.2
or vllm-router 0.1.17 under their names and labels. Paths other than those of generation share the label value \`other\`.

${table(['metric', 'type', '--metrics-compat', 'labels', 'meaning'], peerRows)}
`;
}

function endpointsPage(): string {
  const callers = { everyone: 'everyone', clients: 'clients (any key)', admins: 'admins' };
  const rows = endpoints.map(({ method, path, caller, needs, summary }) => [
    `\`${method} ${path}\``,
    callers[caller],
    needs ?? '',
    summary,
  ]);
  return `# Endpoints

Generated from \`router/src/admin/endpoints.ts\`: the endpoints of the router itself. \`GET /openapi.json\` has the same list. Every other path
goes to an engine; [control paths](controls.md) go to all engines. The column "who may call it" applies if keys are set
([security](../guides/security.md)).

${table(['endpoint', 'who may call it', 'needs', 'meaning'], rows)}
`;
}

function errorsPage(): string {
  const rows = Object.entries(errorTable).map(([code, { status, meaning, advice }]) => [
    `\`${code}\``,
    String(status),
    isRetryable(code as ErrorCode) ? 'yes' : 'no',
    meaning,
    advice,
  ]);
  return `# Errors

Generated from \`router/src/kit/errors.ts\`. Errors that the router gives requests for engines have their code in \`x-turnout-error\` and the
error format of the API that was called (OpenAI, SGLang, Anthropic for \`/v1/messages\`). A malformed request gets the status that fits best
(400, 408, 414, 417, 431, 501, 505). An engine's own errors pass unchanged.

The router's own [endpoints](endpoints.md) answer \`{"error": TEXT, "code": CODE}\` with these codes. The worker API (\`/workers\` and the paths below
it) has the codes of the routers that it is compatible with: \`BAD_REQUEST\`, \`WORKER_NOT_FOUND\`, with \`--worker-api vllm\` also
\`ADD_WORKER_FAILED\`. \`/v1/rl\`, the hot-load API and the Tinker API have the errors of their own APIs.

${table(['code', 'status', 'retry', 'meaning', 'what to do'], rows)}
`;
}

function controlsPage(): string {
  const rows = controls.map(({ path, isForOne, isReadByGet, needsNoAdmin, flushes, changesVersion, changesModels }) => [
    `\`${path}\``,
    isForOne === true ? 'one' : isReadByGet === true ? 'all (GET: one)' : 'all',
    needsNoAdmin === undefined ? 'admin' : `admin; clients ${needsNoAdmin}`,
    [
      ...(flushes === undefined ? [] : [`prefix caches count as empty${flushes === true ? '' : ` ${flushes}`}`]),
      ...(changesVersion === true ? ['weight versions are read again'] : []),
      ...(changesModels === true ? ['models are read again'] : []),
    ].join('; '),
  ]);
  return `# Controls

Generated from \`router/src/engines/controls.ts\`: the control paths of engines (SGLang, vLLM, servers for training), also
with a prefix (\`--root-path\`). A \`*\` at the end matches any text. A request to all engines gets a report as response:
[fleet control](../guides/fleet-control.md). HEAD and OPTIONS always go to one worker.

${table(['path', 'goes to', 'key', 'after success'], rows)}
`;
}

/** The part of JSON Schema that options of plugins use. */
interface ValueSchema {
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly anyOf?: readonly ValueSchema[];
  readonly items?: ValueSchema;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
}

const typeNames: Readonly<Record<string, string>> = {
  boolean: '`true` or `false`',
  integer: 'whole number',
  null: 'null',
  number: 'number',
};

/** The values of an option, in words. */
function valuesOf({ type = '', enum: names, anyOf, items, pattern, minimum, maximum }: ValueSchema): string {
  if (anyOf !== undefined) return anyOf.map(valuesOf).join(', or ');
  if (items !== undefined) return `list of ${valuesOf(items)}`;
  if (names !== undefined) return names.map((name) => `\`"${name}"\``).join(', ');
  if (pattern !== undefined) return `text that matches \`${pattern}\``;
  const name = typeNames[type];
  if (name === undefined) throw new Error(`docs/generate.ts has no words for the type '${type}'`);
  // zod gives integers the bounds of JavaScript.
  const most = maximum === undefined || maximum === Number.MAX_SAFE_INTEGER ? '' : ` to ${maximum}`;
  return minimum === undefined ? name : `${name} from ${minimum}${most}`;
}

function feedPage(): string {
  const { properties = {} } = z.toJSONSchema(feedOptions, { io: 'input' }) as {
    readonly properties?: Readonly<
      Record<string, ValueSchema & { readonly default: unknown; readonly description: string }>
    >;
  };
  const rows = Object.entries(properties).map(([name, schema]) => [
    `\`${name}\``,
    valuesOf(schema),
    `\`${JSON.stringify(schema.default)}\``,
    schema.description,
  ]);
  return `# Options of the plugin \`feed\`

Generated from \`router/src/recorder/tap/feed/options.ts\`. The options are JSON after the name of the plugin:
\`--plugin 'feed:{"groupSize": 8, "needsReward": true}'\`. A new value needs a restart of the router. An unknown option stops the start.
[Guide](../guides/feed.md).

${table(['option', 'values', 'default', 'meaning'], rows)}
`;
}

const textOf = (value: unknown): string => (Array.isArray(value) ? value.map(String).join(' ') : String(value));
const settingsOf = (held: Values): string =>
  Object.entries(held)
    .map(([name, value]) => `\`--${kebab(name)}${value === true ? '' : ` ${textOf(value)}`}\``)
    .join(', ');

function compatRow({ name, ours, verdict, note, isVital }: AliasFlag, base: Values): string[] {
  const [first] = ours;
  const held = first === undefined ? undefined : base[first];
  const what = note.replace(/^[a-z]+(?=[ ,])/, (word) => word.charAt(0).toUpperCase() + word.slice(1));
  return [
    `\`--${name}\``,
    ours.map((each) => `\`--${kebab(each)}\``).join(', '),
    isVital === true ? 'not supported: the start is refused' : verdict,
    first === undefined ? '' : held === undefined ? defaultOf(options[first]) : `\`${textOf(held)}\``,
    what,
  ];
}

function compatPage(peer: Peer): string {
  const { name, source, verbs, flags, settings } = peer;
  const { base } = readAlias(peer, new Map());
  const count = (verdict: string): number => flags.filter((flag) => flag.verdict === verdict).length;
  return `# \`turnout ${verbs[0]}\`: flags of ${name}

Generated from \`router/src/config/alias/\`. Of ${source}: ${flags.length} flags, ${count('same')} the same,
${count('differs')} with a difference, ${count('not')} without effect here. A flag without effect is named in a warning at the start;
a flag whose absence would weaken security or change what is served stops the start. Lists are separated by spaces or commas, or the
flag is repeated.

All other [options](options.md) of \`turnout serve\` are accepted too, and \`--config\`. Flags override the environment, the
environment overrides the file, the file overrides the defaults below.

The command itself sets: ${settingsOf(settings)}. [Guide](../guides/migrate.md).

${table(
  ['flag', 'ours', 'verdict', 'default', 'what differs'],
  flags.map((flag) => compatRow(flag, base)),
)}
`;
}

/** The phases of plugins, for the guide. */
function phasesTable(): string {
  const mayWait = Object.entries(phases).filter(([, { timing }]) => timing === 'in_time');
  const rows = Object.entries(phases).map(([name, { args, when, does }]) => [`\`${name}(${args})\``, when, does]);
  return `${table(['phase', 'when', 'what it may do'], rows)}

These phases may return a promise; the others return at once: ${mayWait.map(([name]) => `\`${name}\``).join(', ')}.`;
}

/** Generated parts of guides, between \`<!-- generated: npm run docs -->\` and \`<!-- end -->\`. */
export const guides: Readonly<Record<string, () => string>> = { 'write-a-plugin.md': phasesTable };

export const guidePath = (file: string): string => join(import.meta.dirname, 'guides', file);

/** @returns the text of a guide with its generated part as it should be */
export function filled(file: string, text: string): string {
  const [start, end] = ['<!-- generated: npm run docs -->', '<!-- end -->'];
  const [before, after] = [text.indexOf(start), text.indexOf(end)];
  if (before < 0 || after < before) throw new Error(`${file} has no generated part`);
  return `${text.slice(0, before + start.length)}\n\n${guides[file]!()}\n\n${text.slice(after)}`;
}

/** The pages by file name. */
export const pages: Readonly<Record<string, () => string>> = {
  'options.md': optionsPage,
  'turnout.example.yaml': exampleFile,
  'metrics.md': metricsPage,
  'errors.md': errorsPage,
  'feed.md': feedPage,
  'endpoints.md': endpointsPage,
  'compat-sglang.md': () => compatPage(sglang),
  'compat-vllm.md': () => compatPage(vllm),
  'compat-slime.md': () => compatPage(slime),
  'controls.md': controlsPage,
};

if (import.meta.main) {
  for (const [file, page] of Object.entries(pages)) writeFileSync(join(import.meta.dirname, 'reference', file), page());
  for (const file of Object.keys(guides)) {
    const path = guidePath(file);
    writeFileSync(path, filled(file, readFileSync(path, 'utf8')));
  }
}
