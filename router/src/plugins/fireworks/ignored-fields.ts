import { MemberFinder } from '../../kit/json-scan.ts';
import type { Logger } from '../../observe/log.ts';
import type { StateKey } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import { ALIASED, cameByPath } from './names.ts';

/** Fields of requests that only the plugin `rollout-fields` answers. Engines ignore them without a word. */
const FIELDS = ['include_routing_matrix', 'raw_output', 'echo_last', 'perf_metrics_in_response'];
const finder = new MemberFinder(FIELDS);

/** Where the plugin `rollout-fields` is not loaded: names its fields in the log, each once, and in the head of the response. */
export function ignoredFields(log: Logger): Plugin {
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
