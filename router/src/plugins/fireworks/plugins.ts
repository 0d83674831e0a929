import type { FireworksNames } from '../../config/options/routing.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import type { Plugin } from '../../plugin.ts';
import type { Logger } from '../../observe/log.ts';
import { ignoredFields } from './ignored-fields.ts';
import { fireworksMetricHeaders } from './metric-headers.ts';
import { fireworksNames } from './names.ts';

interface Parts {
  readonly fleet: Fleet;
  readonly models: FleetModels;
  readonly log: Logger;
  /** The plugin `rollout-fields` is loaded. */
  readonly hasRolloutFields: boolean;
}

/** What clients of Fireworks need of any fleet. */
export const fireworksPlugins = (
  scope: FireworksNames,
  { fleet, models, log, hasRolloutFields }: Parts,
): readonly Plugin[] => [
  fireworksNames(scope, models),
  fireworksMetricHeaders(scope, fleet),
  ...(hasRolloutFields ? [] : [ignoredFields(log)]),
];
