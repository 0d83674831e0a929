import type { Exchange, PluginDefinition, StateKey } from '../../router/src/index.ts';

/** What the responses of one group have cost so far. */
interface Account {
  tokens: number;
  refused: number;
}

/** What one response has cost. */
interface Cost {
  tokens: number;
  /** Of an event stream. */
  lineFeeds: number;
}

/**
 * A budget of generated tokens for each group of trajectories (`x-turnout-group`): when it is spent, further requests
 * of the group are refused, and their tokens are left for other groups. `GET /budget` shows the accounts. A stream without
 * usage (the client did not ask for it with `stream_options`, or left before the end) costs a token for each event.
 */
export default {
  name: 'budget',
  options: (z) => z.strictObject({ tokens: z.int().min(1) }),
  create({ tokens: budget }, { log, metrics }) {
    const accounts = new Map<string, Account>();
    const spent = metrics.counter({ name: 'budget_tokens_total', help: 'Tokens of answers, of all groups.' });
    const costOf: StateKey<Cost> = {};
    const groupOf = (x: Exchange): string => x.head.get('x-turnout-group') ?? '';

    function accountOf(x: Exchange): Account {
      const group = groupOf(x);
      let account = accounts.get(group);
      if (account === undefined) accounts.set(group, (account = { tokens: 0, refused: 0 }));
      return account;
    }

    function charge(x: Exchange, tokens: number): void {
      const account = accountOf(x);
      account.tokens += tokens;
      spent.inc(tokens);
      if (account.tokens >= budget) log.info({ group: groupOf(x) }, 'budget spent');
    }

    return {
      appliesTo: (x) => x.isGeneration && groupOf(x) !== '',

      admit(x) {
        const account = accountOf(x);
        if (account.tokens < budget) return null;
        account.refused++;
        return { status: 429, message: `This group has had its ${budget} tokens.` };
      },

      // A tap: the client's bytes are on their way already, and nothing of them is kept here but the last few.
      observeResponse(x, head) {
        const isStream = head.get('content-type')?.startsWith('text/event-stream') === true;
        const cost: Cost = { tokens: 0, lineFeeds: 0 };
        x.setState(costOf, cost);
        let tail = '';
        return {
          observe(bytes, start, end) {
            // Usage stands at the end of an answer. What was seen before is kept: it may be cut in two.
            const piece = bytes.toString('latin1', start, end);
            const text = tail + piece;
            if (isStream) cost.lineFeeds += piece.split('\n').length - 1;
            const said = [...text.matchAll(/"completion_tokens":\s*(\d+)[,}]/g)].at(-1);
            tail = text.slice(said === undefined ? -64 : said.index + said[0].length);
            if (said === undefined) return;
            // An engine may tell it with every event.
            charge(x, Number(said[1]) - cost.tokens);
            cost.tokens = Number(said[1]);
          },
        };
      },

      finished(x) {
        const cost = x.state(costOf);
        if (cost === null) return;
        if (cost.tokens === 0) {
          cost.tokens = Math.floor(cost.lineFeeds / 2);
          charge(x, cost.tokens);
        }
        log.debug({ group: groupOf(x), tokens: cost.tokens, outcome: x.outcome }, 'request charged');
      },

      routes({ forClients }) {
        forClients.get('/budget', (c) => c.json(Object.fromEntries(accounts)));
      },
    };
  },
} satisfies PluginDefinition<{ tokens: number }>;
