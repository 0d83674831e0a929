/** The experts of a simulated mixture-of-experts model: a pure function of the sampler's view, so of seed, weights and context. */

import { finish, mix } from './mix.ts';
import type { SimOptions } from '../sim-options.ts';

export type MoeOptions = Pick<SimOptions, 'experts' | 'expertsPerToken' | 'layers' | 'denseLayers'>;

/**
 * The experts that were used to make one token: [layers x expertsPerToken], 0 in dense layers.
 * @param view the sampler's view before that token: the forward that made it has read all tokens before it
 */
export function expertsOf(view: number, { experts, expertsPerToken, layers, denseLayers }: MoeOptions): number[] {
  return Array.from({ length: layers * expertsPerToken }, (_, i) => {
    const layer = Math.floor(i / expertsPerToken);
    if (layer < denseLayers) return 0;
    return (finish(mix(view, layer)) + (i % expertsPerToken)) % experts;
  });
}
