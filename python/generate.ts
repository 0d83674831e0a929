import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { type AliasFlag, type Peer, readAlias } from '../router/src/config/alias/alias.ts';
import { sglang } from '../router/src/config/alias/sglang.ts';
import { vllm } from '../router/src/config/alias/vllm.ts';
import { envName, kebab, options } from '../router/src/config/options.ts';
import type { OptionSpec } from '../router/src/config/options/option.ts';

/** Writes the parts of the Python packages that are tables of the router's: `npm run docs`. A test fails when they differ. */

const snake = (name: string): string => kebab(name).replaceAll('-', '_');
const quote = (text: string): string => JSON.stringify(text);
const words = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('"""', "'''");

/** What stands below defaults and transformations. */
function innermost(schema: z.ZodType): z.ZodType {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional) return innermost(schema.unwrap() as z.ZodType);
  if (schema instanceof z.ZodPipe) return innermost(schema.in as z.ZodType);
  return schema;
}

function pythonType(schema: z.ZodType): string {
  const inner = innermost(schema);
  if (inner instanceof z.ZodBoolean) return 'bool';
  if (inner instanceof z.ZodNumber) return inner.isInt ? 'int' : 'float';
  if (inner instanceof z.ZodUnion) return inner.options.map((each) => pythonType(each as z.ZodType)).join(' | ');
  if (inner instanceof z.ZodLiteral) return `Literal[${quote(String(inner.value))}]`;
  if (inner instanceof z.ZodEnum) return `Literal[${inner.options.map((each) => quote(String(each))).join(', ')}]`;
  if (inner instanceof z.ZodArray) return 'Sequence[str]';
  return 'str';
}

const defaultOf = ({ schema }: OptionSpec): unknown =>
  schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;

function literal(value: unknown): string {
  if (value === undefined || value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  return JSON.stringify(value);
}

function optionLines([name, spec]: [string, OptionSpec]): string {
  const fallback = defaultOf(spec);
  const isSaid = fallback !== undefined && fallback !== false && !(Array.isArray(fallback) && fallback.length === 0);
  const help = isSaid ? `${spec.help} Default: ${literal(fallback).replaceAll('"', '')}.` : spec.help;
  return `    ${snake(name)}: ${pythonType(spec.schema)}\n    """${words(help)}"""\n`;
}

const optionsSource = (): string => `"""The options of the router. Generated from \`router/src/config/options.ts\`."""

from __future__ import annotations

from typing import Literal, Sequence, TypedDict


class RouterOptions(TypedDict, total=False):
    """Options of \`turnout serve\`, with underscores."""

${Object.entries<OptionSpec>(options)
  .filter(([, { isFileOnly }]) => isFileOnly !== true)
  .map(optionLines)
  .join('\n')}`;

/** Fields of theirs that are not named as their flag, or hold something else than texts. */
const fields: Readonly<Record<string, readonly [name: string, type: string]>> = {
  prefill: ['prefill_urls', 'List[Tuple[str, Optional[int]]]'],
  decode: ['decode_urls', 'List[str]'],
  selector: ['selector', 'Dict[str, str]'],
  'prefill-selector': ['prefill_selector', 'Dict[str, str]'],
  'decode-selector': ['decode_selector', 'Dict[str, str]'],
  'api-key': ['api_key', 'Optional[str]'],
  'tls-cert-path': ['server_cert_path', 'Optional[str]'],
  'tls-key-path': ['server_key_path', 'Optional[str]'],
  'control-plane-api-keys': ['control_plane_api_keys', 'List[Tuple[str, str, str, str]]'],
  'jwt-role-mapping': ['jwt_role_mapping', 'Dict[str, str]'],
  'wasm-middleware-route': ['wasm_middleware_routes', 'List[str]'],
};

function flagType({ takes, ours }: AliasFlag): string {
  if (takes === 'nothing') return 'bool';
  if (takes === 'many') return 'List[str]';
  const types = ours.map((name) => pythonType(options[name].schema));
  // A flag that sets several options is a number where all of them are.
  if (types.length === 0 || types.some((type) => type !== 'int' && type !== 'float')) return 'str';
  return types.includes('float') ? 'float' : 'int';
}

/**
 * Where the `RouterArgs` of sglang-router 0.3.2 has other defaults than the documentation of SGLang 0.5.2, which our verb goes by.
 * Frameworks are written against these: at most 64 requests at once would stall their rollouts.
 */
const routerArgsDefaults: Readonly<Record<string, number>> = {
  'worker-startup-timeout-secs': 1_800,
  'worker-startup-check-interval': 30,
  'cache-threshold': 0.3,
  'balance-abs-threshold': 64,
  'balance-rel-threshold': 1.5,
  'max-tree-size': 67_108_864,
  'max-payload-size': 536_870_912,
  'request-timeout-secs': 1_800,
  'max-concurrent-requests': -1,
  'retry-max-retries': 5,
  'retry-initial-backoff-ms': 50,
  'retry-max-backoff-ms': 30_000,
  'retry-backoff-multiplier': 1.5,
  'retry-jitter-factor': 0.2,
  'cb-failure-threshold': 10,
  'cb-success-threshold': 3,
  'cb-timeout-duration-secs': 60,
  'cb-window-duration-secs': 120,
};

/** What holds when it is not given, where the flag's own text says the same; null: nothing that can be written so. */
function shownDefault(peer: Peer, flag: AliasFlag): unknown {
  const theirs = peer === sglang ? routerArgsDefaults[flag.name] : undefined;
  if (theirs !== undefined) return theirs;
  const { base } = readAlias(peer, new Map());
  const [name] = flag.ours;
  if (flag.takes !== 'one' || name === undefined) return flag.moot?.[0] ?? null;
  const value = base[name] ?? defaultOf(options[name]);
  if (typeof value !== 'string' && typeof value !== 'number') return null;
  return flag.read([String(value)], new Map())[name] === value ? value : null;
}

function fieldLine(peer: Peer, flag: AliasFlag): string {
  const [name, given] = fields[flag.name] ?? [flag.name.replaceAll('-', '_'), flagType(flag)];
  const isList = /^(List|Dict)/.test(given);
  const fallback = shownDefault(peer, flag);
  const type =
    isList || given === 'bool' || fallback !== null || given.startsWith('Optional') ? given : `Optional[${given}]`;
  const start = isList
    ? `default_factory=${given.startsWith('Dict') ? 'dict' : 'list'}`
    : `default=${given === 'bool' ? 'False' : literal(fallback)}`;
  const [ours] = flag.ours;
  // Not what the verb does without being told.
  const told = peer === sglang && flag.name in routerArgsDefaults ? ', "always": True' : '';
  // Command lines can be read by others.
  const isSecret = ours !== undefined && /apiKey$/i.test(ours);
  const isOurList = isSecret && innermost(options[ours].schema) instanceof z.ZodArray;
  const env = isSecret ? `, "env": ${quote(envName(ours))}${isOurList ? ', "env_is_list": True' : ''}` : '';
  const help = flag.note === '' && ours !== undefined ? options[ours].help : flag.note;
  return `    ${name}: ${type} = field(\n        ${start},\n        metadata={"flag": ${quote(flag.name)}${told}${env}, "help": ${quote(help)}},\n    )\n`;
}

/** Of the release whose flags they are. */
const versionOf = ({ source }: Peer): string => /\d+\.\d+\.\d+/.exec(source)![0];

const argsSource = (
  peer: Peer,
  extra: string,
): string => `"""The arguments of ${peer.name}. Generated from \`router/src/config/alias/\`."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from turnout_compat.args import PeerArgs


@dataclass
class RouterArgs(PeerArgs):
    """Arguments of ${peer.name}, as its own \`RouterArgs\` has them."""

${peer.flags.map((flag) => fieldLine(peer, flag)).join('')}${extra}`;

const versionSource = (peer: Peer): string => `"""Generated from \`router/src/config/alias/\`."""

__version__ = "${versionOf(peer)}+turnout"
`;

/** SkyRL asks for both names of it. */
const pdAlias = `
    @property
    def pd_disaggregation(self) -> bool:
        return self.vllm_pd_disaggregation
`;

/** The files by path, from the root. */
export const sources: Readonly<Record<string, () => string>> = {
  'python/turnout/src/turnout/_options.py': optionsSource,
  'python/compat/src/sglang_router/router_args.py': () => argsSource(sglang, ''),
  'python/compat/src/sglang_router/version.py': () => versionSource(sglang),
  'python/compat/src/vllm_router/router_args.py': () => argsSource(vllm, pdAlias),
  'python/compat/src/vllm_router/version.py': () => versionSource(vllm),
};

if (import.meta.main) {
  for (const [path, source] of Object.entries(sources)) writeFileSync(join(import.meta.dirname, '..', path), source());
}
