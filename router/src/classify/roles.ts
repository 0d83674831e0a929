import { steersEngine } from '../engines/controls.ts';
import { isGeneration, isSafe } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import type { Role } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';

/** What SGLang 0.5.23 takes the fields of a pair in. */
export const pairPaths: ReadonlySet<string> = new Set(['/generate', '/v1/completions', '/v1/chat/completions']);
/** Text to ids and back: no model runs. */
const tokenizerPaths: ReadonlySet<string> = new Set(['/tokenize', '/detokenize', '/v1/tokenize', '/v1/detokenize']);

const PAIR: readonly Role[] = ['prefill', 'decode'];
const PREFILL: readonly Role[] = ['prefill'];
const DECODE: readonly Role[] = ['decode'];

/**
 * Settles who serves an exchange of a fleet of pairs: a pair, or one engine of it. A decode engine gets nothing that could run
 * a model without its twin at a prefill engine: SGLang's (0.5.23) dies of it.
 * @returns why nobody can serve it
 */
export function settleRoles(x: Exchange): RouterError | null {
  const { path } = x;
  const { method } = x.head;
  if (method === 'POST' && pairPaths.has(path)) x.roles = PAIR;
  else if (tokenizerPaths.has(path)) x.roles = PREFILL;
  else if (isSafe(method) || (steersEngine(path) && !endsInGeneration(path))) x.roles = DECODE;
  else {
    const served = [...pairPaths].join(', ');
    return new RouterError(
      'not_with_pairs',
      `Pairs of prefill and decode engines serve POST ${served}, not this path.`,
    );
  }
  return null;
}

/** Engines with a `--root-path` answer with and without it. */
function endsInGeneration(path: string): boolean {
  for (let at = 0; at >= 0; at = path.indexOf('/', at + 1)) {
    if (isGeneration('POST', path.slice(at))) return true;
  }
  return false;
}
