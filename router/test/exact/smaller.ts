import type { Group, Plan } from './plan.ts';

/** Lists with a half, or a single item, left out. */
function without<T>(list: readonly T[]): (readonly T[])[] {
  const half = list.length >> 1;
  const halves = list.length > 3 ? [list.slice(0, half), list.slice(half)] : [];
  return [...halves, ...list.map((_, i) => list.toSpliced(i, 1))];
}

/** Plans that are a little smaller, the smallest first. */
function* smallerPlans(plan: Plan): Generator<Plan> {
  const { groups } = plan;
  for (const left of without(groups)) if (left.length > 0) yield { ...plan, groups: left };
  for (const [g, group] of groups.entries()) {
    const withGroup = (one: Group): Plan => ({ ...plan, groups: groups.with(g, one) });
    for (const samples of without(group.samples)) if (samples.length > 0) yield withGroup({ ...group, samples });
    for (const [s, script] of group.samples.entries())
      for (const steps of without(script)) yield withGroup({ ...group, samples: group.samples.with(s, steps) });
  }
  if (plan.engines.length > 1) yield { ...plan, engines: plan.engines.slice(0, 1) };
}

/** The smallest plan that still fails, as far as `deadlineMs` (of `performance.now`) allows; null: not even this one does. */
export async function smallest(
  plan: Plan,
  failureOf: (plan: Plan) => Promise<Error | null>,
  deadlineMs: number,
): Promise<{ plan: Plan; error: Error } | null> {
  const error = await failureOf(plan);
  if (error === null) return null;
  let found = { plan, error };
  search: for (;;) {
    for (const smaller of smallerPlans(found.plan)) {
      if (performance.now() > deadlineMs) return found;
      const failure = await failureOf(smaller);
      if (failure === null) continue;
      found = { plan: smaller, error: failure };
      continue search;
    }
    return found;
  }
}
