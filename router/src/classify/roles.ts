import type { PairKind } from '../config/pairs.ts';
import { steersEngine } from '../engines/controls.ts';
import { isGeneration, isSafe } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import type { Role } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';

/** What SGLang 0.5.23 takes the fields of a pair in. */
const pairPaths: ReadonlySet<string> = new Set(['/generate', '/v1/completions', '/v1/chat/completions']);
/** Text to ids and back: no model runs. */
const tokenizerPaths: ReadonlySet<string> = new Set(['/tokenize', '/detokenize', '/v1/tokenize', '/v1/detokenize']);

/** What vLLM 0.32.0 takes `kv_transfer_params` in, and answers them. */
const vllmPairPaths: ReadonlySet<string> = new Set([
  '/v1/completions',
  '/v1/chat/completions',
  '/v1/responses',
  '/v1/messages',
  '/inference/v1/generate',
]);

const PAIR: readonly Role[] = ['prefill', 'decode'];
const PREFILL: readonly Role[] = ['prefill'];
const DECODE: readonly Role[] = ['decode'];

/**
 * Settles who serves an exchange of a fleet of pairs: a pair, or one engine of it. A decode engine gets nothing that could run
 * a model without its twin at a prefill engine: SGLang's (0.5.23) dies of it.
 * @returns why nobody can serve it
 */
function settleRoles(x: Exchange): RouterError | null {
  const { path } = x;
  const { method } = x.head;
  if (method === 'POST' && pairPaths.has(path)) x.roles = PAIR;
  else if (tokenizerPaths.has(path)) x.roles = PREFILL;
  else if (isSafe(method) || (steersEngine(path) && !endsInGeneration(path))) x.roles = DECODE;
  else {
    const served = [...pairPaths].join(', ');
    return new RouterError('not_with_pairs', `Prefill/decode pairs serve POST ${served}, not this path.`);
  }
  return null;
}

/**
 * As `settleRoles`, of vLLM's engines: a decode engine of theirs can do everything, if need be alone. Whether a request goes to a pair
 * is settled by its body.
 */
function settleVllmRoles(x: Exchange): null {
  x.roles = x.head.method === 'POST' && vllmPairPaths.has(x.path) ? PAIR : DECODE;
  return null;
}

/** By whose engines make pairs; null: nobody's. */
export const settlerOf = (kind: PairKind | null): ((x: Exchange) => RouterError | null) => {
  if (kind === null) return () => null;
  return kind === 'sglang' ? settleRoles : settleVllmRoles;
};

/** Engines with a `--root-path` answer with and without it. */
function endsInGeneration(path: string): boolean {
  for (let at = 0; at >= 0; at = path.indexOf('/', at + 1)) {
    if (isGeneration('POST', path.slice(at))) return true;
  }
  return false;
}
