import type { FireworksNames } from '../../config/options/routing.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { FleetModels } from '../../fleet/fleet-models.ts';
import type { Plugin } from '../../plugin.ts';
import { fireworksMetricHeaders } from './metric-headers.ts';
import { fireworksNames } from './names.ts';

/** What clients of Fireworks need of any fleet. */
export const fireworksPlugins = (scope: FireworksNames, fleet: Fleet, models: FleetModels): readonly Plugin[] => [
  fireworksNames(scope, models),
  fireworksMetricHeaders(scope, fleet),
];
