// The peers: their versions, where they are found, and how they are installed.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { SystemName } from './rows.ts';

export type PeerName = Exclude<SystemName, 'turnout' | 'turnout-before' | 'node-copy' | 'nginx'>;

/** `module`: how it is started, because sglang-router installs a command named smg too. */
const peers: Readonly<Record<PeerName, { version: string; module: readonly string[] }>> = {
  'vllm-router': { version: '0.1.17', module: ['vllm_router.launch_router'] },
  'sglang-router': { version: '0.3.2', module: ['sglang_router.launch_router'] },
  smg: { version: '1.13.0', module: ['smg', 'launch'] },
};

const ownFolder = join(import.meta.dirname, '.peers');
const namedFolder = process.env['TURNOUT_PEERS_VENV'];

/** Installs into the virtual environment that is searched first, so that the installed version is measured. */
export function installPeers(): void {
  const folder = namedFolder ?? ownFolder;
  const packages = Object.entries(peers).map(([name, { version }]) => `${name}==${version}`);
  // The installers' output goes to stderr: stdout is for the report.
  const stdio = ['ignore', 2, 2] as const;
  execFileSync('python3', ['-m', 'venv', folder], { stdio: [...stdio] });
  execFileSync(join(folder, 'bin/python'), ['-m', 'pip', 'install', ...packages], { stdio: [...stdio] });
}

export interface InstalledPeer {
  readonly command: readonly string[];
  readonly version: string;
}

/** Asks the Python of a virtual environment, or the one on PATH, whether it has the package. */
export function findPeer(name: PeerName): InstalledPeer | undefined {
  const venv = namedFolder ?? (existsSync(ownFolder) ? ownFolder : undefined);
  const python = venv === undefined ? 'python3' : join(venv, 'bin/python');
  const question = `import importlib.metadata as m; print(m.version(${JSON.stringify(name)}))`;
  const asked = spawnSync(python, ['-c', question], { encoding: 'utf8' });
  if (asked.status !== 0) return undefined;
  return { command: [python, '-m', ...peers[name].module], version: asked.stdout.trim() };
}

export function findNginx(): InstalledPeer | undefined {
  // Debian keeps it in a folder that is not on every user's PATH.
  for (const command of ['nginx', '/usr/sbin/nginx']) {
    const asked = spawnSync(command, ['-v'], { encoding: 'utf8' });
    const version = /nginx\/(\S+)/.exec(asked.stderr ?? '')?.[1];
    if (version !== undefined) return { command: [command], version };
  }
  return undefined;
}
