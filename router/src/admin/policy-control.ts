import { createHash } from 'node:crypto';
import { loadPolicy } from '../choose/load-policy.ts';
import type { PolicyContext } from '../choose/policy.ts';
import { PolicyTable } from '../choose/policy-table.ts';
import { boundedKey } from '../classify/body-reader.ts';
import type { Config } from '../config/options.ts';
import type { Logger } from '../observe/log.ts';
import type { PolicyControl } from './policies.ts';

type Surroundings = Omit<PolicyContext, 'options' | 'trace' | 'warn'> & { readonly log: Logger };

/** Names of files have an end. */
const MAX_FILE_WORD = 120;

/** Makes the policies that the configuration names, and what changes them later. Rejects when one can't be had. */
export async function startChoosing(
  config: Config,
  { log, ...surroundings }: Surroundings,
): Promise<{ table: PolicyTable; control: PolicyControl }> {
  // The other router's users read these lines at info.
  const level = config.keyOrder === 'vllm-router' ? 'info' : 'debug';
  const load = (model: string, name: string) =>
    loadPolicy(
      name,
      {
        ...surroundings,
        options: config,
        state: (map) => surroundings.state(model === '' ? map : `${map}@${fileWord(model)}`),
        trace: log.isLevelEnabled(level) ? (line) => log[level](`${name}: ${line}`) : null,
        warn: (line) => log.warn(`${name}: ${line}`),
      },
      (where, error, count) => log.error({ policy: name, in: where, count, err: error }, 'policy failed'),
    );
  if (config.evictionIntervalSecs !== undefined) {
    log.warn('--eviction-interval-secs has no effect: --max-tree-size is kept at every request');
  }
  const table = new PolicyTable(await load('', config.policy));
  for (const entry of config.modelPolicy) {
    const at = entry.lastIndexOf('=');
    const model = entry.slice(0, at);
    table.set(model, await load(model, entry.slice(at + 1)));
  }
  return {
    table,
    control: {
      list: () =>
        Array.from(table.entries(), ([model, { name, policy }]) => ({
          model,
          policy: name,
          state: policy.describe?.() ?? {},
        })),
      async set(model, policy) {
        table.set(model, await load(model, policy));
      },
      unset: (model) => table.unset(model),
      endSession: (session) => table.sessionEnded(boundedKey(session)),
    },
  };
}

/** A model's name as part of a file's: readable where it can be, and no two alike. */
function fileWord(model: string): string {
  const word = encodeURIComponent(model.toWellFormed());
  return word.length <= MAX_FILE_WORD ? word : createHash('sha256').update(model).digest('hex');
}
