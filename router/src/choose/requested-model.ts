import type { Exchange } from '../exchange.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';

/** At most this many model names are listed in an error message. */
const MAX_NAMES = 8;
const MODEL_PATH = '/v1/models/';
/** SGLang 0.5.23 accepts this as "no model named", and its clients send it. */
const UNNAMED = 'default';

/**
 * Where workers serve different models: finds the model of a request whose body was read. Engines load adapters at run time, so workers
 * are asked again before a model counts as unknown.
 */
export function findModel(x: Exchange, models: FleetModels, then: () => void): void {
  const first = models.firstLook();
  if (first !== null) return void first.then(() => findModel(x, models, then));
  x.model ||= modelOf(x.path);
  x.model = models.alias?.(x.model) ?? x.model;
  if (x.model === '' || models.isServed(x.model)) return then();
  if (x.model === UNNAMED) {
    x.model = '';
    return then();
  }
  void models.lookFor(x.model).then(then);
}

/**
 * The error of a request whose model no worker is known to serve, in the words of the OpenAI API; null: its model exists, or it has none.
 */
export function unknownModel({ model }: Exchange, models: FleetModels): RouterError | null {
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

/** The model that the path asks about, or ''. */
const modelOf = (path: string): string => (path.startsWith(MODEL_PATH) ? decoded(path.slice(MODEL_PATH.length)) : '');

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
