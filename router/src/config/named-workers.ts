import type { Config } from './options.ts';
import { splitList } from './split-list.ts';

/** A worker as the configuration names it. */
export interface NamedWorker {
  readonly url: string;
  readonly role: 'regular' | 'prefill' | 'decode';
  readonly bootstrapPort: number | null;
  /** The option that names it, for people. */
  readonly flag: string;
}

/** The workers that the configuration names. */
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

/** Reads `URL`, `URL PORT` and `URL none`, one after the other. Throws, in words for the user. */
function readPrefill(parts: readonly string[]): NamedWorker[] {
  const workers: NamedWorker[] = [];
  let mayFollow = false;
  for (const part of splitList(parts)) {
    const isNone = part.toLowerCase() === 'none';
    if (!isNone && !/^\d+$/.test(part)) {
      workers.push({ url: part, role: 'prefill', bootstrapPort: null, flag: '--prefill' });
      mayFollow = true;
      continue;
    }
    if (!mayFollow) throw new Error(`"${part}" has to follow a URL: give --prefill http://host:port 8998.`);
    mayFollow = false;
    if (isNone) continue;
    const bootstrapPort = Number(part);
    if (bootstrapPort < 1 || bootstrapPort > 65_535) throw new Error(`"${part}" is no port.`);
    workers.push({ ...workers.pop()!, bootstrapPort });
  }
  return workers;
}

/** @returns what is wrong with the options about pairs, in words for the user; '' for nothing. */
export function pairsProblem(
  config: Pick<Config, 'workerUrls' | 'prefill' | 'decode' | 'pdDisaggregation' | 'prefillPolicy' | 'decodePolicy'>,
): string {
  const { pdDisaggregation, prefill, decode, prefillPolicy, decodePolicy, workerUrls } = config;
  if (!pdDisaggregation) {
    if (prefill.length > 0) return '--prefill needs --pd-disaggregation';
    if (decode.length > 0) return '--decode needs --pd-disaggregation';
    if (prefillPolicy !== undefined) return '--prefill-policy needs --pd-disaggregation';
    return decodePolicy === undefined ? '' : '--decode-policy needs --pd-disaggregation';
  }
  if (workerUrls.length > 0)
    return '--worker-urls names engines that serve whole requests: with --pd-disaggregation give --prefill and --decode';
  let workers: readonly NamedWorker[];
  try {
    workers = namedWorkers(config);
  } catch (error) {
    return `--prefill: ${(error as Error).message}`;
  }
  const urls = workers.map(({ url }) => url.replace(/\/+$/, ''));
  const twice = urls.findIndex((url, i) => urls.indexOf(url) !== i);
  return twice < 0
    ? ''
    : `${workers[twice]!.flag}: ${urls[twice]!.replace(/^.*@/, '')} is named twice: an engine has one place in the fleet`;
}
