import { SWAPPED_ADAPTER, adapterModel } from '../../engines/adapters.ts';
import type { EngineKind } from '../../engines/engine.ts';

/** '' for a part that the client does not name. */
export interface ResourceNames {
  /** accounts/{account}/models/{model} */
  readonly model: string;
  /** accounts/{account}/deployments/{deployment} */
  readonly deployment: string;
}

/** Clients may repeat the model of a streamed chunk, which ends with `@` and the snapshot. */
const MODEL = /^(accounts\/[^/#@\s]+\/models\/[^/#@\s]+)(?:@[^/#@\s]*)?$/;
const DEPLOYMENT = /^accounts\/[^/#@\s]+\/deployments\/[^/#@\s]+$/;

/**
 * Reads the `model` of a request: a model, a deployment (as the training SDK of fireworks-ai 1.2.28 sends it), or `MODEL#DEPLOYMENT`.
 *
 * @returns null if it is no name of a Fireworks resource
 */
export function readNames(text: string): ResourceNames | null {
  if (DEPLOYMENT.test(text)) return { model: '', deployment: text };
  const hash = text.indexOf('#');
  const model = MODEL.exec(hash < 0 ? text : text.slice(0, hash))?.[1];
  const deployment = hash < 0 ? '' : text.slice(hash + 1);
  return model === undefined || !(hash < 0 || DEPLOYMENT.test(deployment)) ? null : { model, deployment };
}

/** @returns the name by which engines serve the model; '' if they don't serve it */
export function servedName({ model }: ResourceNames, isServed: (name: string) => boolean): string {
  const last = model.slice(model.lastIndexOf('/') + 1);
  return [model, last].find((name) => name !== '' && isServed(name)) ?? '';
}

/**
 * @param served what an engine lists: the JSON of each model by its name
 * @returns the name under which the engine gets the request: the adapter of a weight swap, or what is like the name, or its model. '' if it
 *   lists none
 */
export const engineName = (
  names: ResourceNames,
  served: ReadonlyMap<string, string>,
  kind: EngineKind | null,
): string =>
  served.has(SWAPPED_ADAPTER)
    ? adapterModel(kind, SWAPPED_ADAPTER, baseModel(served))
    : servedName(names, (name) => served.has(name)) || baseModel(served);

/** The first model without a parent: adapters have one. */
function baseModel(served: ReadonlyMap<string, string>): string {
  for (const [name, json] of served) {
    const { parent } = JSON.parse(json) as { parent?: string | null };
    if ((parent ?? null) === null) return name;
  }
  return '';
}
