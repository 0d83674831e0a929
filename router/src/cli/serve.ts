import { ConfigError } from '../config/load.ts';
import type { Config } from '../config/options.ts';
import { startRouter } from '../router.ts';

/**
 * Runs a router until it is told to stop.
 *
 * @param readConfig reads flags, environment and file anew each time
 */
export async function serve(readConfig: () => Config): Promise<void> {
  // A signal that comes while it starts waits for that: unheard, it would end the process.
  const started = startRouter(readConfig()).catch((error: unknown) => {
    throw new ConfigError((error as Error).message);
  });
  process.on('SIGHUP', () => void started.then((router) => router.reload(readConfig)));
  let isStopping = false;
  const stop = (): void => {
    // A second signal means: now.
    if (isStopping) process.exit(1);
    isStopping = true;
    void started
      .then((router) => router.close(router.config.shutdownGracePeriodSecs * 1000))
      .then(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  await started;
}
