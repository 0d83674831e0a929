import { splitList } from '../../config/load.ts';
import type { Config } from '../../config/options.ts';
import type { KvFeedOptions } from '../../engines/kv-events-feed.ts';
import { readWorkerUrl } from '../../fleet/worker-url.ts';

type Endpoints = Pick<KvFeedOptions, 'endpoint' | 'replayEndpoint'>;

/**
 * The event endpoint of each worker. `--kv-event-endpoints` names it: `http://worker:8000=tcp://host:5557`, followed by
 * `replay=tcp://host:5558` if that engine has a replay. Otherwise it is the worker's host with `--kv-event-port` and
 * `--kv-replay-port`; for a DP rank (`http://worker:8000@2`) the rank is added to both, as engines do.
 *
 * Throws an error with a message for the user.
 */
export function eventEndpoints({ kvEventEndpoints, kvEventPort, kvReplayPort }: Config): (url: string) => Endpoints {
  const listed = readList(splitList(kvEventEndpoints));
  return (url) => {
    const own = listed.get(url);
    if (own !== undefined) return own;
    const rank = Number(/@(\d+)$/.exec(url)?.[1] ?? 0);
    const { hostname } = new URL(url.replace(/@\d+$/, ''));
    const at = (port: number): string => `tcp://${hostname}:${port + rank}`;
    return { endpoint: at(kvEventPort), replayEndpoint: kvReplayPort === undefined ? null : at(kvReplayPort) };
  };
}

function readList(entries: readonly string[]): Map<string, Endpoints> {
  const listed = new Map<string, Endpoints>();
  let last = '';
  for (const entry of entries) {
    const [, name = '', endpoint = ''] = /^(.+?)=((?:tcp|ipc):\/\/.+)$/.exec(entry) ?? [];
    if (name === 'replay' && last !== '') {
      listed.set(last, { ...listed.get(last)!, replayEndpoint: endpoint });
      continue;
    }
    const rank = /@\d+$/.exec(name)?.[0] ?? '';
    const address = readWorkerUrl(name.slice(0, name.length - rank.length), null);
    if (name === '' || name === 'replay' || typeof address === 'string') {
      const problem = name === 'replay' ? 'needs a worker=endpoint entry before it' : 'is not worker=endpoint';
      throw new Error(
        `--kv-event-endpoints: "${entry}" ${problem}: give http://worker:port=tcp://host:port, then replay=tcp://host:port if there is one.`,
      );
    }
    last = address.url + rank;
    listed.set(last, { endpoint, replayEndpoint: null });
  }
  return listed;
}
