import { gatewayHeader, gatewayHeaders } from '../classify/gateway-headers.ts';
import type { RequestHead } from '../wire/request-head.ts';

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
export const priorityOf = (head: RequestHead, objectives: Objectives): number =>
  objectives.size === 0 ? 0 : (objectives.get(gatewayHeader(head, gatewayHeaders.objective)) ?? 0);
