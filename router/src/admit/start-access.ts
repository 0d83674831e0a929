import type { Config } from '../config/options.ts';
import type { WorkerKey } from '../fleet/worker.ts';
import { Cors } from './cors.ts';
import { Authorizer } from './authorizer.ts';
import { KeySet } from './keys.ts';
import { isLoopback } from './known-hosts.ts';
import { type PageGuardParts, pageGuard } from './page-guard.ts';

/** Throws an error for the user if a key file can't be read. */
function keySetsOf(config: Config) {
  return {
    dataKeys: new KeySet({ keys: config.apiKey ?? [], file: config.apiKeyFile, option: '--api-key-file' }),
    adminKeys: new KeySet({
      keys: config.adminApiKey ?? [],
      file: config.adminApiKeyFile,
      option: '--admin-api-key-file',
    }),
  };
}

/** A key with which the router can be controlled; null: it needs none. */
export function controlKeyOf(config: Config): string | null {
  const { dataKeys, adminKeys } = keySetsOf(config);
  return adminKeys.first || dataKeys.first || null;
}

/** Reads keys, and makes the checks of them. Throws an error for the user if a key file can't be read. */
export function startAccess(config: Config) {
  const { dataKeys, adminKeys } = keySetsOf(config);
  const hasAdminPort = config.adminPort !== undefined;
  const isGuarded = !dataKeys.isEmpty || !adminKeys.isEmpty || hasAdminPort;
  const isOpen = !isGuarded && config.tlsClientCaPath === undefined && !isLoopback(config.host);
  const workerKey: WorkerKey = { authorization: '' };
  const readWorkerKey = (): void => {
    const key = config.workerApiKey ?? (config.sendApiKeyToWorkers ? dataKeys.first : '');
    workerKey.authorization = key === '' ? '' : `Bearer ${key}`;
  };
  readWorkerKey();
  return {
    /** For the log: everyone may control the router; null: not so. */
    warning: isOpen
      ? `--host ${config.host} without keys: everyone who can reach it may send requests, add workers and control engines. Give --api-key-file, or --admin-api-key-file for control requests only.`
      : null,
    /** @returns null: no request needs a key */
    authorizer: (parts: Omit<PageGuardParts, 'hasShownKey'>) =>
      isGuarded ? new Authorizer({ ...parts, dataKeys, adminKeys, hasAdminPort }) : null,
    /** For requests to engines. */
    workerKey,
    cors: config.corsAllowedOrigins.length > 0 ? new Cors(config.corsAllowedOrigins) : null,
    pageGuard: (parts: PageGuardParts) => pageGuard(config, parts),
    /** Reads key files again; throws if one can't be read. @returns applies their keys */
    prepareReload(): () => void {
      const steps = [dataKeys.prepare(), adminKeys.prepare(), readWorkerKey];
      return () => {
        for (const step of steps) step();
      };
    },
  };
}
