import type { Exchange, PluginDefinition, StateKey } from '../../router/src/index.ts';

/** What the responses of one group have cost so far. */
interface Account {
  tokens: number;
  refused: number;
}

/**
 * A budget of generated tokens for each group of trajectories (`x-turnout-group`): when it is spent, further requests
 * of the group are refused, and their tokens are left for other groups. `GET /budget` shows the accounts.
 */
export default {
  name: 'budget',
  options: (z) => z.strictObject({ tokens: z.int().min(1) }),
  create({ tokens: budget }, { log, metrics }) {
    const accounts = new Map<string, Account>();
    const spent = metrics.counter({ name: 'budget_tokens_total', help: 'Tokens of answers, of all groups.' });
    const spentBy: StateKey<number> = {};
    const groupOf = (x: Exchange): string => x.head.get('x-turnout-group') ?? '';

    function accountOf(x: Exchange): Account {
      const group = groupOf(x);
      let account = accounts.get(group);
      if (account === undefined) accounts.set(group, (account = { tokens: 0, refused: 0 }));
      return account;
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
      observeResponse(x) {
        const account = accountOf(x);
        let tail = '';
        return {
          observe(bytes, start, end) {
            // Usage stands at the end of an answer. What was seen before is kept: it may be cut in two.
            const text = tail + bytes.toString('latin1', start, end);
            const said = [...text.matchAll(/"completion_tokens":\s*(\d+)[,}]/g)].at(-1);
            tail = text.slice(said === undefined ? -64 : said.index + said[0].length);
            if (said === undefined) return;
            const tokens = Number(said[1]);
            account.tokens += tokens;
            spent.inc(tokens);
            x.setState(spentBy, (x.state(spentBy) ?? 0) + tokens);
            if (account.tokens >= budget) log.info({ group: groupOf(x) }, 'budget spent');
          },
        };
      },

      finished(x) {
        log.debug({ group: groupOf(x), tokens: x.state(spentBy), outcome: x.outcome }, 'request charged');
      },

      routes({ forClients }) {
        forClients.get('/budget', (c) => c.json(Object.fromEntries(accounts)));
      },
    };
  },
} satisfies PluginDefinition<{ tokens: number }>;
