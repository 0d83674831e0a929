import { openKvEventFeed } from '../../engines/kv-events-feed.ts';
import { whyNoKvEvents } from '../../engines/kv-events-package.ts';
import type { PlacedRequest } from '../../placed-request.ts';
import type { Worker } from '../../fleet/worker.ts';
import { KvFeeds, type OpenFeed } from '../kv-index/kv-feeds.ts';
import { KvIndex } from '../kv-index/kv-index.ts';
import { type Policy, type PolicyContext, sumOfSizes } from '../policy.ts';
import { TieBreaker } from '../tie-breaker.ts';

/**
 * The worker with the fewest tokens to compute before the response begins: those of the prompt that are not in its KV
 * cache, as the engine reports it (`--kv-event-endpoints`, `--kv-event-port`), and those of the prompts in flight
 * there. Ties are broken in turn.
 *
 * A token to compute and a token of a prompt in flight weigh the same, as in Dynamo's router by default. Tokens in
 * slower memory count less. A worker whose events are not received counts as empty. Prompts sent as text or chat cannot
 * be looked up without a tokenizer: least in flight.
 */
export function kvAware(context: PolicyContext, open: OpenFeed = openKvEventFeed, whyNot = whyNoKvEvents): Policy {
  const { fleet, options, warn } = context;
  const problem = whyNot();
  if (problem !== null) throw new Error(`kv_aware: ${problem}`);
  const index = new KvIndex();
  const feeds = new KvFeeds(fleet, index, options, open, warn);
  const ties = new TieBreaker();
  /** By slot. */
  const inFlight: number[] = [];
  const cached: number[] = [];
  let slots = new Int32Array(0);
  let found = new Float64Array(0);
  /** How many tokens the prompt has that was looked up last; -1: it did not come as ids. */
  let askedTokens = -1;
  /** The exchange of the last choice. */
  let asked: PlacedRequest | null = null;

  const load = (worker: Worker): number => fleet.load(worker);
  const count = ({ prompt }: PlacedRequest, { slot }: Worker, sign: 1 | -1): void => {
    inFlight[slot] = (inFlight[slot] ?? 0) + sign * (prompt?.tokens ?? 0);
  };

  /** Sets in `cached`, by slot, how many tokens of the prompt these workers hold. */
  const lookUp = (x: PlacedRequest, workers: readonly Worker[]): void => {
    const prompt = x.promptIds;
    askedTokens = prompt?.ids.length ?? -1;
    if (prompt === null) return;
    const { ids, salt } = prompt;
    if (slots.length !== workers.length) {
      slots = new Int32Array(workers.length);
      found = new Float64Array(workers.length);
    }
    for (const [i, { slot }] of workers.entries()) slots[i] = slot;
    index.matchPrompt(slots, ids, found, feeds.isLora(x.model) ? x.model : null, salt);
    for (const [i, { slot }] of workers.entries()) cached[slot] = found[i]!;
  };

  /** Tokens to compute before the response begins. */
  const cost = ({ slot }: Worker): number => askedTokens - cached[slot]! + (inFlight[slot] ?? 0);

  return {
    needs: 'ids',
    choose(x, workers) {
      lookUp(x, workers);
      asked = x;
      if (askedTokens < 0) return ties.least(workers, load).alone;
      const chosen = ties.least(workers, cost);
      x.predictedTokens = cached[chosen.slot]!;
      return chosen.alone;
    },
    begun: (x, worker) => count(x, worker, 1),
    ended(x, worker) {
      count(x, worker, -1);
      if (x.outcome === 'complete') feeds.serves(worker);
    },
    whyMoved: () => ({ reason: 'prompt' }),
    flushed(worker, why) {
      // Events are in order, and this call is not: the engine may have stored blocks since it was emptied, and does not report them again.
      if (why === 'engine' && feeds.stateOf(worker).isConnected) return;
      index.cleared(worker.slot);
    },
    // As `choose` has left them.
    costs(_x, workers, costs) {
      for (const [i, worker] of workers.entries()) costs[i] = askedTokens < 0 ? load(worker) : cost(worker);
    },
    explain(x, workers) {
      if (x !== asked) lookUp(x, workers);
      const tokens = askedTokens < 0 ? (x.prompt?.tokens ?? 0) : askedTokens;
      return workers.map((worker) => {
        const cachedTokens = askedTokens < 0 ? 0 : cached[worker.slot]!;
        const tokensInFlight = inFlight[worker.slot] ?? 0;
        const terms = { cachedTokens, tokensToCompute: tokens - cachedTokens, tokensInFlight, load: load(worker) };
        return { worker: worker.url, terms };
      });
    },
    indexSize: () => sumOfSizes(fleet.workers.map(({ slot }) => index.stateOf(slot))),
    describe() {
      const byWorker = fleet.workers.map((worker) => {
        const { blocks, unplaced, blockSize } = index.stateOf(worker.slot);
        return [worker.url, { ...feeds.stateOf(worker), blocks, blockSize, unplaced }] as const;
      });
      const states = byWorker.map(([, state]) => state);
      return {
        connected: states.filter(({ isConnected }) => isConnected).length,
        blocks: states.reduce((sum, { blocks }) => sum + blocks, 0),
        losses: states.reduce((sum, { losses }) => sum + losses, 0),
        byWorker: Object.fromEntries(byWorker),
      };
    },
    close: () => feeds.close(),
  };
}
