// The time of each router from the start of its process to its first response, and its memory then:
// bench/start/report.md.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startSimEngine } from '../../simulator/src/engine.ts';
import { freePort } from '../../router/test/harness/free-port.ts';
import { machine } from '../machine.ts';
import { median } from '../median.ts';
import { type PeerName, findPeer } from '../peers.ts';
import { processTree, residentBytes } from '../proc.ts';
import { routerProgram } from '../router.ts';

const RUNS = Number(process.argv[2] ?? 5);
/** Idle from here on. */
const SETTLE_MS = 1_500;
const root = join(import.meta.dirname, '../..');

interface Figures {
  readonly wallMs: number;
  readonly rssMb: number;
}

async function answers(url: string): Promise<boolean> {
  return fetch(url).then(
    async (answer) => {
      await answer.arrayBuffer();
      return true;
    },
    () => false,
  );
}

async function measure(command: readonly string[], port: number): Promise<Figures> {
  const [program = '', ...args] = command;
  const beganMs = performance.now();
  const child = spawn(program, args, { stdio: 'ignore' });
  const ended = once(child, 'exit');
  while (!(await answers(`http://127.0.0.1:${port}/health`))) await sleep(2);
  const wallMs = performance.now() - beganMs;
  await sleep(SETTLE_MS);
  const rssMb = residentBytes(processTree(child.pid!)) / 2 ** 20;
  child.kill('SIGTERM');
  await ended;
  return { wallMs, rssMb };
}

/** The package as it is installed: bin and dist, without the sources. */
const folder = mkdtempSync(join(tmpdir(), 'turnout-start-'));
try {
  execFileSync('npm', ['run', 'build'], { cwd: root, stdio: 'ignore' });
  for (const each of ['bin', 'dist', 'package.json'])
    cpSync(join(root, 'router', each), join(folder, each), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  const engine = await startSimEngine({ timeScale: 0 });
  const own = (main: string) => (port: number) => [
    process.execPath,
    main,
    'serve',
    '--port',
    String(port),
    '--prometheus-port',
    '0',
    '--worker-urls',
    engine.url,
  ];
  const peerCommand = (name: PeerName) => {
    const peer = findPeer(name);
    if (peer === undefined) return null;
    const metrics = name === 'smg' ? [] : ['--prometheus-port', String(40_000 + Math.floor(process.pid % 1_000))];
    return (port: number) => [
      ...peer.command,
      '--host',
      '127.0.0.1',
      '--port',
      String(port),
      '--worker-urls',
      engine.url,
      ...metrics,
    ];
  };
  const contenders: [string, ((port: number) => string[]) | null][] = [
    ['turnout, built package', own(join(folder, 'bin/turnout.js'))],
    ['turnout, checkout', own(routerProgram)],
    ['vllm-router', peerCommand('vllm-router')],
    ['sglang-router', peerCommand('sglang-router')],
  ];
  const results = new Map<string, Figures[]>();
  for (let run = 0; run < RUNS; run++) {
    for (const [name, commandFor] of contenders) {
      if (commandFor === null) continue;
      const port = await freePort();
      results.set(name, [...(results.get(name) ?? []), await measure(commandFor(port), port)]);
    }
  }
  await engine.close();
  const rows = [...results].map(
    ([name, all]) =>
      `| ${name} | ${(median(all.map(({ wallMs }) => wallMs)) / 1000).toFixed(2)} s | ${median(all.map(({ rssMb }) => rssMb)).toFixed(0)} MB |`,
  );
  const missing = contenders.filter(([, command]) => command === null).map(([name]) => name);
  const text = `# Start

\`npm run bench -- start\`: from the start of the process to the first answer of \`/health\`, one worker, and the resident memory of the process and
its children ${SETTLE_MS / 1000} s later. Medians of ${RUNS} interleaved runs. Machine: ${machine()}.${missing.length > 0 ? ` Not installed: ${missing.join(', ')}.` : ''}

| router | start | idle memory |
| --- | ---: | ---: |
${rows.join('\n')}
`;
  writeFileSync(join(import.meta.dirname, 'report.md'), text);
  process.stdout.write(text);
} finally {
  if (existsSync(folder)) rmSync(folder, { recursive: true });
}
