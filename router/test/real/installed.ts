import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';

const here = import.meta.dirname;

function root(): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return process.env['TURNOUT_REAL_DIR'] ?? join(cache, 'turnout');
}

export type EngineKind = 'vllm' | 'sglang';
export type Model = 'dense' | 'dense_v2' | 'moe';

export function pythonOf(kind: EngineKind): string {
  return join(root(), 'engines', kind, 'bin', 'python');
}

export function folderOf(model: Model): string {
  return join(root(), 'models', model);
}

/**
 * Installs what is not yet cached. Gives the reason where the real engines can't be had, in the form that node:test
 * takes as `skip`, else false.
 */
export const whyNoEngines = (): Promise<string | false> => install(['install.sh'], "the real engines can't be had");

/** The same for a pair of prefill and decode engines of this kind. */
export async function whyNoPairs(kind: EngineKind): Promise<string | false> {
  return (await whyNoEngines()) || install(['install_pairs.sh', kind], `no real pair of ${kind} engines`);
}

/** Where that lies by which this kind's KV goes from engine to engine. */
export function connectorOf(kind: EngineKind): string {
  return join(root(), 'pairs', kind);
}

function install([script, ...args]: [string, ...string[]], refused: string): Promise<string | false> {
  const child = spawn('bash', [join(here, script), ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let lastLine = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    process.stderr.write(text); // an install takes minutes: show that it goes on
    lastLine = text.trimEnd().split('\n').at(-1)!.replace('suite:real: ', '');
  });
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(`${refused}: ${error.message}`));
    child.once('close', (status) => resolve(status === 0 ? false : `${refused}: ${lastLine}`));
  });
}
