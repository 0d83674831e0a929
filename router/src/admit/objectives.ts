import type { RequestHead } from '../wire/request-head.ts';

/** Of the Gateway API Inference Extension; the second name is that of llm-d's picker since 2026. */
const OBJECTIVE = ['x-gateway-inference-objective', 'x-llm-d-inference-objective'] as const;

/** The priority of each objective, by its name. */
export type Objectives = ReadonlyMap<string, number>;

/** @param entries `name=priority` each, as `--objectives` has them */
export const objectivesOf = (entries: readonly string[]): Objectives =>
  new Map(
    entries.map((entry) => {
      const at = entry.lastIndexOf('=');
      return [entry.slice(0, at), Number(entry.slice(at + 1))];
    }),
  );

/** The priority of a request by the objective that it names; 0: it names none that is known. */
export function priorityOf(head: RequestHead, objectives: Objectives): number {
  if (objectives.size === 0) return 0;
  for (const header of OBJECTIVE) {
    const priority = objectives.get(head.get(header) ?? '');
    if (priority !== undefined) return priority;
  }
  return 0;
}
