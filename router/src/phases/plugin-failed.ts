import { messageOf } from '../config/user-module.ts';
import { RouterError } from '../kit/errors.ts';
import { ThreadEnded } from '../threads/worker-thread.ts';

/** The error of a request that a plugin failed on. A plugin whose thread has ended can be tried again: the thread is started again. */
export function pluginFailed(plugin: string, error: unknown): RouterError {
  const again = error instanceof ThreadEnded ? { status: 503, retryAfterSecs: 1 } : {};
  return new RouterError('plugin_failed', `The plugin "${plugin}" failed: ${messageOf(error)}`, again);
}
