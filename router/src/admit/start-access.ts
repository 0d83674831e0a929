import type { Config } from '../config/options.ts';
import type { WorkerKey } from '../fleet/worker.ts';
import { Cors } from './cors.ts';
import { Authorizer } from './authorizer.ts';
import { KeySet } from './keys.ts';
import { isLoopback } from './known-hosts.ts';
import { PageGuard, type PageGuardParts } from './page-guard.ts';

export interface Access {
  /** @returns null: no request needs a key */
  authorizer(parts: Omit<PageGuardParts, 'hasShownKey'>): Authorizer | null;
  /** What engines are shown. */
  readonly workerKey: WorkerKey;
  readonly cors: Cors | null;
  pageGuard(parts: PageGuardParts): PageGuard;
  /** For the log: who may control the router, where that is everyone; null: it is not. */
  readonly warning: string | null;
  /** Reads key files again. Throws when one can't be read. @returns what puts their keys in force */
  prepareReload(): () => void;
}

/** Reads keys and makes what asks for them. Throws, in words for the user, when a key file can't be read. */
export function startAccess(config: Config): Access {
  const dataKeys = new KeySet({ keys: config.apiKey ?? [], file: config.apiKeyFile, option: '--api-key-file' });
  const adminKeys = new KeySet({
    keys: config.adminApiKey ?? [],
    file: config.adminApiKeyFile,
    option: '--admin-api-key-file',
  });
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
    warning: isOpen
      ? `--host ${config.host} without keys: everyone who can reach it may send requests, add workers and control engines. Give --api-key-file, or --admin-api-key-file for control requests only.`
      : null,
    authorizer: (parts) => (isGuarded ? new Authorizer({ ...parts, dataKeys, adminKeys, hasAdminPort }) : null),
    workerKey,
    cors: config.corsAllowedOrigins.length > 0 ? new Cors(config.corsAllowedOrigins) : null,
    pageGuard: (parts) => new PageGuard(config, parts),
    prepareReload() {
      const steps = [dataKeys.prepare(), adminKeys.prepare(), readWorkerKey];
      return () => {
        for (const step of steps) step();
      };
    },
  };
}
