import type { PlacedRequest } from '../placed-request.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';

/** At most this many model names are listed in an error message. */
const MAX_NAMES = 8;

/**
 * The error of a request whose model no worker is known to serve, in the words of the OpenAI API; null: its model exists, or it has none.
 */
export function unknownModel({ model }: PlacedRequest, models: FleetModels): RouterError | null {
  if (model === '' || models.isServed(model)) return null;
  const { unread } = models;
  if (unread.length > 0) return notYetKnown(model, unread);
  const names = models.names();
  const served = names.slice(0, MAX_NAMES).map((name) => `\`${name}\``);
  const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more` : '';
  const message = `The model \`${model}\` does not exist. Served: ${served.join(', ')}${more} (GET /v1/models).`;
  return new RouterError('model_not_found', message);
}

/** Names workers by their ids, because clients must not read the addresses of engines. */
function notYetKnown(model: string, unread: readonly Worker[]): RouterError {
  const ids = unread.slice(0, MAX_NAMES).map(({ id }) => id);
  const more = unread.length > MAX_NAMES ? `, and ${unread.length - MAX_NAMES} more` : '';
  const message =
    `No worker is known to serve the model \`${model}\`, and the models of ${unread.length} workers are not known yet: ` +
    `${ids.join(', ')}${more}. Retry after retry-after. See GET /workers; remove a worker that does not start (DELETE /workers/ID).`;
  return new RouterError('no_available_workers', message);
}
