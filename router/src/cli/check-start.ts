import { pino } from 'pino';
import { ConfigError } from '../config/load.ts';
import type { Config } from '../config/options.ts';
import { checkRouter } from '../router.ts';

/** Does what a start does before it opens a port. Throws `ConfigError` with the message of the failed start. */
export async function checkStart(config: Config): Promise<void> {
  try {
    await checkRouter(config, pino({ level: 'silent' }));
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}
