import type { Config } from './options.ts';
import { splitList } from './split-list.ts';

/** A worker in the configuration. */
export interface NamedWorker {
  readonly url: string;
  readonly role: 'regular' | 'prefill' | 'decode';
  readonly bootstrapPort: number | null;
  /** The option that names it. */
  readonly flag: string;
}

export function namedWorkers({
  workerUrls,
  prefill,
  decode,
}: Pick<Config, 'workerUrls' | 'prefill' | 'decode'>): NamedWorker[] {
  const bare = (role: 'regular' | 'decode', flag: string) => (url: string) => ({
    url,
    role,
    bootstrapPort: null,
    flag,
  });
  return [
    ...splitList(workerUrls).map(bare('regular', '--worker-urls')),
    ...readPrefill(prefill),
    ...splitList(decode).map(bare('decode', '--decode')),
  ];
}

/** Reads a sequence of `URL`, `URL PORT` and `URL none`. Throws an error with a message for the user. */
function readPrefill(parts: readonly string[]): NamedWorker[] {
  const workers: NamedWorker[] = [];
  let mayFollow = false;
  for (const part of splitList(parts)) {
    const isNone = part.toLowerCase() === 'none';
    if (!isNone && !/^\d+$/.test(part)) {
      // After a URL a bare word is taken for a misspelled port, and not for the name of a host.
      if (mayFollow && /^[^:./]+$/.test(part)) {
        const problem = `"${part}" after a URL of --prefill is neither a port nor "none".`;
        throw new Error(`${problem} Write another engine as http://host:port.`);
      }
      workers.push({ url: part, role: 'prefill', bootstrapPort: null, flag: '--prefill' });
      mayFollow = true;
      continue;
    }
    if (!mayFollow) throw new Error(`"${part}" must follow a URL: use --prefill http://host:port 8998.`);
    mayFollow = false;
    if (isNone) continue;
    const bootstrapPort = Number(part);
    if (bootstrapPort < 1 || bootstrapPort > 65_535) throw new Error(`"${part}" is not a port.`);
    workers.push({ ...workers.pop()!, bootstrapPort });
  }
  return workers;
}
