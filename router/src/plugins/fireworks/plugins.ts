import type { FireworksNames } from '../../config/options/routing.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import type { Plugin } from '../../plugin.ts';
import type { Logger } from '../../observe/log.ts';
import { ALIASED, cameByPath, fireworksNames } from './names.ts';
import { MemberFinder } from '../../kit/json-scan.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import type { ResponseHead } from '../../wire/response-head.ts';

interface Parts {
  readonly fleet: Fleet;
  readonly models: FleetModels;
  readonly log: Logger;
  readonly hasRolloutFields: boolean;
}

export const fireworksPlugins = (
  scope: FireworksNames,
  { fleet, models, log, hasRolloutFields }: Parts,
): readonly Plugin[] => [
  fireworksNames(scope, models),
  fireworksMetricHeaders(scope, fleet),
  ...(hasRolloutFields ? [] : [ignoredFields(log)]),
];

/** Fields that need the plugin `rollout-fields`. Engines ignore them. */
const FIELDS = ['include_routing_matrix', 'raw_output', 'echo_last', 'perf_metrics_in_response'];
const finder = new MemberFinder(FIELDS);

/** Reports ignored fields in the response head, and once in the log. */
function ignoredFields(log: Logger): Plugin {
  const found: StateKey<string> = {};
  const logged = new Set<string>();
  return {
    name: 'fireworks-ignored-fields',
    ...ALIASED,
    appliesTo: cameByPath,
    requestBody(x, body) {
      const spans = new Int32Array(2 * FIELDS.length);
      if (finder.find(body, 0, body.length, spans) < 0) return body;
      const fields = FIELDS.filter((_, i) => {
        const value = spans[2 * i]! < 0 ? '' : body.toString('latin1', spans[2 * i], spans[2 * i + 1]);
        return value !== '' && value !== 'false' && value !== 'null';
      });
      if (fields.length > 0) x.setState(found, fields.join(', '));
      for (const field of fields) {
        if (logged.has(field)) continue;
        logged.add(field);
        log.warn(
          { field, requestId: x.head.requestId },
          'field of a request has no effect without --plugin rollout-fields',
        );
      }
      return body;
    },
    responseHead(x, head) {
      const fields = x.state(found);
      if (fields !== null) head.add(`x-turnout-ignored-fields: ${fields}\r\n`);
    },
  };
}

const DEPLOYMENT = 'fireworks-deployment';
const names = [DEPLOYMENT, 'fireworks-model'];

/**
 * Adds the headers that `ServerMetrics` of fireworks-ai 1.2.28 reads, as far as the values are known when the head is sent: of an event
 * stream without its tokens and times.
 */
function fireworksMetricHeaders(scope: FireworksNames, fleet: Pick<Fleet, 'inFlight'>): Plugin {
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
      const { promptTokens = null, cachedTokens = null } = x.usage ?? {};
      const fields: [string, number][] = [['server-processing-time', (performance.now() - x.startMs) / 1000]];
      if (promptTokens !== null) fields.push(['prompt-tokens', promptTokens]);
      if (cachedTokens !== null) fields.push(['cached-prompt-tokens', cachedTokens]);
      x.state(waiting)!.add(linesOf(fields));
      return body;
    },
  };
}

const linesOf = (fields: readonly (readonly [string, number])[]): string =>
  fields.map(([name, value]) => `fireworks-${name}: ${Number(value.toFixed(6))}\r\n`).join('');
