import type { PairKind } from '../config/pairs.ts';
import { steersEngine } from '../engines/controls.ts';
import { sglangPairPaths, vllmPairPaths } from '../engines/dialects/pairs.ts';
import { isGeneration, isSafe } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import type { Role } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';

/** Text to ids and back: no model runs. */
const tokenizerPaths: ReadonlySet<string> = new Set(['/tokenize', '/detokenize', '/v1/tokenize', '/v1/detokenize']);

const PAIR: readonly Role[] = ['prefill', 'decode'];
const PREFILL: readonly Role[] = ['prefill'];
const DECODE: readonly Role[] = ['decode'];

/**
 * Decides which roles serve an exchange in a fleet of pairs: both, or one. A decode engine must not run a model without
 * its prefill half: SGLang's (0.5.23) crashes.
 * @returns the error if no engine can serve it
 */
function assignRoles(x: Exchange): RouterError | null {
  const { path } = x;
  const { method } = x.head;
  if (method === 'POST' && sglangPairPaths.has(path)) x.roles = PAIR;
  else if (tokenizerPaths.has(path)) x.roles = PREFILL;
  else if (isSafe(method) || (steersEngine(path) && !endsInGeneration(path))) x.roles = DECODE;
  else {
    const served = [...sglangPairPaths].join(', ');
    return new RouterError('not_with_pairs', `Prefill/decode pairs serve POST ${served}, not this path.`);
  }
  return null;
}

/** The same for vLLM, whose decode engines can serve every request alone. The body decides who serves a request. */
function assignVllmRoles(x: Exchange): null {
  x.roles = x.head.method === 'POST' && vllmPairPaths.has(x.path) ? PAIR : DECODE;
  return null;
}

/** @returns null: engines are not paired */
export const roleAssigner = (kind: PairKind | null): ((x: Exchange) => RouterError | null) | null => {
  if (kind === null) return null;
  return kind === 'sglang' ? assignRoles : assignVllmRoles;
};

/** Engines with a `--root-path` answer with and without it. */
function endsInGeneration(path: string): boolean {
  for (let at = 0; at >= 0; at = path.indexOf('/', at + 1)) {
    if (isGeneration('POST', path.slice(at))) return true;
  }
  return false;
}
