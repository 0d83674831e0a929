import type { FireworksNames } from '../../config/options/routing.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import { withMembers } from '../../kit/json-edit.ts';
import { MemberFinder, readString } from '../../kit/json-scan.ts';
import type { ExchangeView } from '../../phases/exchange-view.ts';
import type { Plugin } from '../../plugin.ts';
import { type ResourceNames, engineName, readNames, servedName } from './resource-names.ts';

/** The prefix of engines' paths in those of Fireworks. */
const PREFIX = '/inference';
/** Only requests with this prefix can be Fireworks requests. It ends with `c` because vLLM itself serves `/inference/v1/generate`. */
export const ALIASED = { pathPrefix: `${PREFIX}/v1/c` };
const ALIAS = /^\/inference(\/v1\/(?:chat\/)?completions)(?:\?|$)/;

export const cameByPath = ({ clientPath }: ExchangeView): boolean => clientPath !== null && ALIAS.test(clientPath);

/** @returns null: the body has no model, or one that is not a name of a Fireworks resource */
export function namesIn(body: Buffer): ResourceNames | null {
  if (finder.find(body, 0, body.length, span) < 0 || span[0]! < 0) return null;
  const text = readString(body, span[0]!, span[1]!);
  return text === null ? null : readNames(text);
}
const finder = new MemberFinder(['model']);
const span = new Int32Array(2);

/** Maps paths and model names of Fireworks to those of engines (`--fireworks-names`). */
export function fireworksNames(scope: FireworksNames, models: FleetModels): Plugin {
  // If engines serve different models, the name decides which engines are eligible.
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
      x.clientPath !== null ? cameByPath(x) : scope === 'all' && x.isGeneration && x.path.startsWith('/v1/'),
    requestBody(_x, body, worker) {
      const names = namesIn(body);
      if (names === null) return body;
      const renamed = (): Buffer => {
        const name = engineName(names, worker.models ?? new Map(), worker.engine);
        return name === '' ? body : (withMembers(body, { model: JSON.stringify(name) }) ?? body);
      };
      // After its first health check a worker's models are not known yet.
      return worker.models === null ? models.lookAgain().then(renamed) : renamed();
    },
  };
}
