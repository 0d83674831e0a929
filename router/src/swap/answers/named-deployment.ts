import type { ExchangeView } from '../../phases/exchange-view.ts';
import { cameByPath } from '../../plugins/fireworks/names.ts';
import { readNames } from '../../plugins/fireworks/resource-names.ts';
import type { Deployments } from '../deployments.ts';

/**
 * Whether a request is for a deployment by its names: those of its headers, of its body (`model`, '' for none) or its path. Other clients
 * know of no deployments, whatever engine serves them.
 */
export function namesDeployment(x: ExchangeView, model: string, deployments: Deployments): boolean {
  const names = readNames(model);
  const deployment = x.head.get('fireworks-deployment') ?? names?.deployment ?? '';
  const modelName = x.head.get('fireworks-model') ?? names?.model ?? '';
  if (deployment === '' && modelName === '' && !cameByPath(x)) return false;
  const found = deployments.find({
    ...(deployment === '' ? {} : { deployment }),
    ...(modelName === '' ? {} : { model: modelName }),
  });
  return found !== null;
}
