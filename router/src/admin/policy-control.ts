import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { loadPolicy } from '../choose/load-policy.ts';
import { pairPolicy } from '../choose/pair-policy.ts';
import type { PolicyContext } from '../choose/policy.ts';
import { type NamedPolicy, PolicyTable } from '../choose/policy-table.ts';
import type { SessionHomes } from '../choose/session-homes.ts';
import type { HoldQueue } from '../choose/hold-queue.ts';
import { routingOptions } from '../config/options/routing.ts';
import type { LiveConfig, Preparation } from '../config/live.ts';
import { pairKind } from '../config/pairs.ts';
import type { Config } from '../config/options.ts';
import type { Logger } from '../observe/log.ts';
import type { Hono } from 'hono';
import * as z from 'zod';
import { checkJson } from '../config/check-input.ts';

interface Deps extends Omit<PolicyContext, 'options' | 'trace' | 'warn' | 'retryHeld'> {
  readonly holdQueue: HoldQueue;
  readonly homes: SessionHomes;
  readonly log: Logger;
}

/** File names have a maximum length. */
const MAX_FILE_WORD = 120;

/** Loads the policies of the configuration. Rejects if one cannot be loaded. */
export async function startChoosing(live: LiveConfig, { log, holdQueue, homes, ...deps }: Deps) {
  const config = live.current;
  const loadOne = (model: string, name: string, options: Config, half: '' | 'prefill' | 'decode') => {
    // vllm-router logs these lines at info.
    const level = options.keyOrder === 'vllm-router' ? 'info' : 'debug';
    const trace = (line: string): void => log[level](`${name}: ${line}`);
    return loadPolicy(
      name,
      {
        ...deps,
        options,
        retryHeld: () => holdQueue.retryHeld(),
        state: (map) => {
          const own = half === '' ? map : `${map}-${half}`;
          return deps.state(model === '' ? own : `${own}@${fileWord(model)}`);
        },
        get trace() {
          return log.isLevelEnabled(level) ? trace : null;
        },
        warn: (line) => log.warn(`${name}: ${line}`),
      },
      (where, error, count) => log.error({ policy: name, in: where, count, err: error }, 'policy failed'),
    );
  };
  /** Pairs have two policies: --policy, unless --prefill-policy or --decode-policy is set. */
  const load = async (model: string, name: string, options = live.current): Promise<NamedPolicy> => {
    if (pairKind(options) === null) return loadOne(model, name, options, '');
    const isUsual = model === '';
    const prefill = await loadOne(model, (isUsual ? options.prefillPolicy : undefined) ?? name, options, 'prefill');
    try {
      const decode = await loadOne(model, (isUsual ? options.decodePolicy : undefined) ?? name, options, 'decode');
      return { name, policy: pairPolicy(prefill, decode) };
    } catch (error) {
      prefill.policy.close?.();
      throw error;
    }
  };
  const table = new PolicyTable(await load('', config.policy));
  try {
    for (const [model, name] of policiesOf(config)) if (model !== '') table.set(model, await load(model, name));
  } catch (error) {
    table.close();
    throw error;
  }
  // What is saved is read before the router listens, not with its first request.
  for (const [, { policy }] of table.entries()) policy.describe?.();

  /** Calls that change the policy of a model, in their order; one that loads slowly must not replace what a later one has set. */
  let calls = 0;
  const applied = new Map<string, number>();
  /** Calls that load a policy now. What others have applied matters to them only. */
  let loading = 0;
  const apply = (model: string, call: number): void => {
    if (loading > 0) applied.set(model, call);
  };

  /** A policy whose name and options are unchanged stays; the others are loaded again, with their saved state. */
  const prepareReload: Preparation = async (next, now) => {
    const [wanted, before] = [policiesOf(next), policiesOf(now)];
    const isTuned = tuning.some((name) => !isDeepStrictEqual(next[name], now[name]));
    const names = new Map(Array.from(table.entries(), ([model, { name }]) => [model, name]));
    const made = new Map<string, NamedPolicy>();
    const gone: string[] = [];
    try {
      for (const model of new Set([...names.keys(), ...wanted.keys()])) {
        // A policy that was set while running stays, unless the configuration of its model changed.
        const name = wanted.get(model) === before.get(model) ? names.get(model) : wanted.get(model);
        if (name === undefined) gone.push(model);
        else if (isTuned || name !== names.get(model)) made.set(model, await load(model, name, next));
      }
    } catch (error) {
      for (const { policy } of made.values()) policy.close?.();
      throw error;
    }
    if (made.size === 0 && gone.length === 0) return null;
    return () => {
      const call = ++calls;
      for (const model of [...made.keys(), ...gone]) apply(model, call);
      for (const [model, named] of made) table.set(model, named);
      for (const model of gone) table.unset(model);
      holdQueue.retryAll();
    };
  };
  return {
    table,
    prepareReload,
    control: {
      list: () =>
        Array.from(table.entries(), ([model, { name, policy }]) => ({
          model,
          policy: name,
          state: policy.describe?.() ?? {},
        })),
      /** Rejects if there is no such policy. */
      async set(model: string, policy: string): Promise<void> {
        const call = ++calls;
        loading++;
        try {
          const named = await load(model, policy);
          if (call < (applied.get(model) ?? 0)) return named.policy.close?.();
          apply(model, call);
          table.set(model, named);
        } finally {
          if (--loading === 0) applied.clear();
        }
        log.info({ policy, model }, 'policy changed');
        holdQueue.retryAll();
      },
      /** @returns false: the model has no policy of its own */
      unset(model: string): boolean {
        const isKnown = table.unset(model);
        apply(model, ++calls);
        if (isKnown) holdQueue.retryAll();
        return isKnown;
      },
      /** Told of each session that is ended by a call; undefined: those with this name of all tenants. */
      onSessionEnded: (_session: string, _tenant: string | undefined): void => {},
      /** @returns whether a policy knows the session */
      endSession(session: string, tenant: string | undefined): boolean {
        this.onSessionEnded(session, tenant);
        homes.ended(session);
        const isKnown = table.sessionEnded(session);
        // Its capacity is free, but no request ends here that would retry held requests.
        if (isKnown) holdQueue.retryHeld();
        return isKnown;
      },
    },
  };
}

/** '' is the name for all other models. */
function policiesOf({ policy, modelPolicy }: Config): Map<string, string> {
  const names = new Map([['', policy]]);
  for (const entry of modelPolicy) {
    const at = entry.lastIndexOf('=');
    names.set(entry.slice(0, at), entry.slice(at + 1));
  }
  return names;
}

/** The options that policies read when they are loaded. */
const tuning = (Object.keys(routingOptions) as (keyof typeof routingOptions)[]).filter(
  (name) => !['policy', 'modelPolicy', 'sessionHeaders', 'dataDir', 'streamCoalesceMs'].includes(name),
);

/** The model's name as a unique part of a file name. */
function fileWord(model: string): string {
  const word = encodeURIComponent(model.toWellFormed());
  return word.length <= MAX_FILE_WORD ? word : createHash('sha256').update(model).digest('hex');
}

export type PolicyControl = Awaited<ReturnType<typeof startChoosing>>['control'];

const newPolicy = z.strictObject({ policy: z.string().min(1), model: z.string().default('') });

export function addPolicyRoutes(app: Hono, policies: PolicyControl): void {
  app.get('/policies', (c) => c.json({ policies: policies.list() }));
  app.put('/policies', async (c) => {
    const body = checkJson(newPolicy, await c.req.text());
    if (body.problem !== null) return c.json({ error: body.problem, code: 'bad_request' }, 400);
    try {
      await policies.set(body.data.model, body.data.policy);
    } catch (error) {
      return c.json({ error: (error as Error).message, code: 'bad_request' }, 400);
    }
    return c.json({ policies: policies.list() });
  });
  app.delete('/policies', (c) => {
    const model = c.req.query('model') ?? '';
    if (model === '') return c.json({ error: 'Say which: ?model=NAME', code: 'bad_request' }, 400);
    if (policies.unset(model)) return c.json({ policies: policies.list() });
    return c.json({ error: `Model "${model}" has no policy of its own`, code: 'not_found' }, 404);
  });
}
