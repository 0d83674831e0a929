import type { Needs } from '../placed-request.ts';
import { type PolicyName, isPath, policyName, policyNames } from '../config/options/policy-names.ts';
import { importDefault, messageOf } from '../config/user-module.ts';
import type { Exchange } from '../exchange.ts';
import { type OnFault, withFaultBoundary } from './fault-boundary.ts';
import { policies } from './built-in-policies.ts';
import type { Policy, PolicyContext } from './policy.ts';
import type { NamedPolicy } from './policy-table.ts';
import { resultChecks } from './result-checks.ts';

/** What a user's own policy is given: the same as the built-in ones, and those. */
export interface CustomPolicyContext extends PolicyContext {
  /**
   * A new policy of that name to build on: `{ ...context.builtIn('sticky_least_loaded'), choose(x, workers) { … } }`.
   */
  readonly builtIn: (name: PolicyName) => Policy;
}

/** The default export of a policy module. */
export type CustomPolicy = (context: CustomPolicyContext) => Policy<Exchange> | Promise<Policy<Exchange>>;

const allNeeds: readonly Needs[] = ['nothing', 'headers', 'key', 'prompt', 'ids'];

/**
 * Makes the built-in policy of that name, or the policy of the module at that path. Throws an error with a message for
 * the user.
 *
 * The default export of a module is what the built-in policies are: a function from the context to a policy.
 */
export async function loadPolicy(nameOrPath: string, context: PolicyContext, onFault: OnFault): Promise<NamedPolicy> {
  const name = policyName(nameOrPath);
  if (isPath(name)) return withFaultBoundary({ name, policy: await makeCustom(name, context) }, onFault, resultChecks);
  return withFaultBoundary({ name, policy: makeBuiltIn(name, context) }, onFault);
}

function makeBuiltIn(name: string, context: PolicyContext): Policy {
  const factory = Object.hasOwn(policies, name) ? policies[name as keyof typeof policies] : undefined;
  if (factory !== undefined) return factory(context);
  throw new Error(`There is no policy "${name}". Use one of ${policyNames.join(', ')}, or the path of a module.`);
}

async function makeCustom(path: string, context: PolicyContext): Promise<Policy> {
  const factory = await importFactory(path);
  let policy: Policy;
  try {
    policy = await factory({ ...context, builtIn: (name) => makeBuiltIn(policyName(name), context) });
  } catch (error) {
    throw new Error(`The policy "${path}" can't be made: ${messageOf(error)}`, { cause: error });
  }
  const problem = problemOf(policy);
  if (problem !== null) throw new Error(`The policy "${path}" ${problem}: see docs/guides/write-a-policy.md.`);
  return policy;
}

async function importFactory(path: string): Promise<CustomPolicy> {
  const factory = await importDefault('policy', path);
  if (typeof factory === 'function') return factory as CustomPolicy;
  throw new Error(`The policy "${path}" has no default export that is a function: see docs/guides/write-a-policy.md.`);
}

/** Checks what TypeScript would have checked for the author. */
function problemOf(policy: Policy): string | null {
  if (typeof policy?.choose !== 'function') return 'made nothing with a choose() method';
  if (allNeeds.includes(policy.needs)) return null;
  return `has needs: ${JSON.stringify(policy.needs)}, expected one of ${allNeeds.join(', ')}`;
}
