import { RouterError } from '../kit/errors.ts';

/** The kind of a path, for access. */
export type Area =
  /** Answered to everybody: probes carry no keys. */
  | 'open'
  /** For holders of any key, if there are keys. */
  | 'metrics'
  | 'data'
  /** Steers the router or engines. */
  | 'admin';

/** What the router asks for. */
export interface Rules {
  readonly hasDataKeys: boolean;
  readonly hasAdminKeys: boolean;
  /** There is a port of its own for what steers. */
  readonly hasAdminPort: boolean;
}

/** What the caller showed. */
export interface Caller {
  readonly holdsDataKey: boolean;
  readonly holdsAdminKey: boolean;
  readonly isOnAdminPort: boolean;
}

/**
 * Who may do what. `--api-key` alone guards everything; `--admin-api-key` alone guards what steers; with both, steering
 * needs an admin key, which is good for everything else too.
 *
 * @returns null: go on.
 */
export function decide(area: Area, rules: Rules, caller: Caller): RouterError | null {
  if (area === 'open') return null;
  if (area === 'admin' && rules.hasAdminPort && !caller.isOnAdminPort) {
    return new RouterError('forbidden', 'This endpoint is only served on the admin port (--admin-port).');
  }
  if (caller.holdsAdminKey) return null;
  if (area === 'admin' && rules.hasAdminKeys) return caller.holdsDataKey ? needsAdminKey() : needsKey();
  const isGuarded = rules.hasDataKeys || (area === 'metrics' && rules.hasAdminKeys);
  return !isGuarded || caller.holdsDataKey ? null : needsKey();
}

const needsKey = (): RouterError =>
  new RouterError('unauthorized', 'A valid API key is required: send "authorization: Bearer KEY".');

const needsAdminKey = (): RouterError =>
  new RouterError(
    'forbidden',
    'This endpoint controls the router or engines: it requires an admin key (--admin-api-key).',
  );
