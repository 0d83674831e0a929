import type { FireworksNames } from '../../config/options/routing.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import { withMembers } from '../../kit/json-edit.ts';
import { MemberFinder, readString } from '../../kit/json-scan.ts';
import type { ExchangeView } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import { type ResourceNames, engineName, readNames, servedName } from './resource-names.ts';

/** What comes before the paths of engines in those of Fireworks. */
const PREFIX = '/inference';
/** Only requests with this prefix can be Fireworks requests. It ends with `c` because vLLM itself serves `/inference/v1/generate`. */
export const ALIASED = { pathPrefix: `${PREFIX}/v1/c` };
const ALIAS = /^\/inference(\/v1\/(?:chat\/)?completions)(?:\?|$)/;

/** Whether the client asked by a path of Fireworks. */
export const cameByPath = ({ clientPath }: ExchangeView): boolean => ALIAS.test(clientPath);

/** What a request calls its model; null: the body has none, or no name of a Fireworks resource. */
export function namesIn(body: Buffer): ResourceNames | null {
  if (finder.find(body, 0, body.length, span) < 0 || span[0]! < 0) return null;
  const text = readString(body, span[0]!, span[1]!);
  return text === null ? null : readNames(text);
}
const finder = new MemberFinder(['model']);
const span = new Int32Array(2);

/** Takes requests by the paths and with the names of Fireworks to engines, which have other ones (`--fireworks-names`). */
export function fireworksNames(scope: FireworksNames, models: FleetModels): Plugin {
  // Where engines serve different models, the name decides which of them may get the request.
  models.alias = (name) => {
    const names = readNames(name);
    return names === null ? name : servedName(names, (each) => models.isServed(each)) || name;
  };
  return {
    name: 'fireworks-names',
    ...(scope === 'inference' && ALIASED),
    retarget({ head }) {
      if (ALIAS.test(head.target)) head.target = head.target.slice(PREFIX.length);
    },
    appliesTo: (x) =>
      x.clientPath !== '' ? cameByPath(x) : scope === 'all' && x.isGeneration && x.path.startsWith('/v1/'),
    requestBody(_x, body, worker) {
      const names = namesIn(body);
      if (names === null) return body;
      const renamed = (): Buffer => {
        const name = engineName(names, worker.models ?? new Map(), worker.engine);
        return name === '' ? body : (withMembers(body, { model: JSON.stringify(name) }) ?? body);
      };
      // A worker whose first health check has just passed was not asked yet.
      return worker.models === null ? models.lookAgain().then(renamed) : renamed();
    },
  };
}
