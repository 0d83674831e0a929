import { arch, cpus, release, totalmem } from 'node:os';

/** The machine of the figures, in a line. */
export function machine(): string {
  const cores = cpus();
  const memory = `${Math.round(totalmem() / 2 ** 30)} GB`;
  return `${cores[0]?.model.trim() ?? 'unknown CPU'}, ${cores.length} cores, ${memory}, Linux ${release()} ${arch()}, Node ${process.version}`;
}
