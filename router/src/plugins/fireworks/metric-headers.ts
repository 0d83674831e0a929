import type { FireworksNames } from '../../config/options/routing.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import { ALIASED, cameByPath } from './names.ts';

const DEPLOYMENT = 'fireworks-deployment';
const names = [DEPLOYMENT, 'fireworks-model'];

/**
 * Adds to responses what clients of Fireworks read of a request (`ServerMetrics` in fireworks-ai 1.2.28), as far as it is known when the
 * head is sent: of an event stream not its tokens and times.
 */
export function fireworksMetricHeaders(scope: FireworksNames, fleet: Pick<Fleet, 'inFlight'>): Plugin {
  /** Heads of whole responses, which are sent after their body is complete. */
  const waiting: StateKey<ResponseHead> = {};
  return {
    name: 'fireworks-metric-headers',
    ...(scope === 'inference' && ALIASED),
    appliesTo: (x) => cameByPath(x) || (scope === 'all' && names.some((name) => x.head.get(name) !== undefined)),
    responseHead(x, head) {
      const deployment = x.head.get(DEPLOYMENT) ?? '';
      const concurrent = x.worker === null ? 0 : fleet.inFlight[x.worker.slot]!;
      if (concurrent > 0) head.add(linesOf([['num-concurrent-requests', concurrent]]));
      if (deployment !== '') head.add(`${DEPLOYMENT}: ${deployment}\r\n`);
      x.setState(waiting, head);
    },
    responseBody(x, body) {
      const { promptTokens = -1, cachedTokens = -1 } = x.usage ?? {};
      const fields: [string, number][] = [['server-processing-time', (performance.now() - x.startMs) / 1000]];
      if (promptTokens >= 0) fields.push(['prompt-tokens', promptTokens]);
      if (cachedTokens >= 0) fields.push(['cached-prompt-tokens', cachedTokens]);
      x.state(waiting)!.add(linesOf(fields));
      return body;
    },
  };
}

const linesOf = (fields: readonly (readonly [string, number])[]): string =>
  fields.map(([name, value]) => `fireworks-${name}: ${Number(value.toFixed(6))}\r\n`).join('');
