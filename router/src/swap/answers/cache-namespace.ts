import { headerKeyText } from '../../classify/routing-keys.ts';
import type { EngineKind } from '../../engines/engine.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { BodyThread } from '../../forward/body-calls.ts';
import type { Plugin } from '../../plugin.ts';
import type { Snapshots } from '../snapshots.ts';

/** The session that a reset with `new_session` leaves its prompt cache to. Other session headers do not count for that. */
const SESSION_HEADER = 'x-multi-turn-session-id';

/**
 * Sets the prompt-cache namespace of each attempt: at the last moment, because a request that was held during a swap must get the one
 * after it. The last plugin that changes a body.
 */
export const cacheNamespace = (
  snapshots: Snapshots,
  kindOf: (worker: Worker) => EngineKind | null,
  thread: BodyThread,
): Plugin => ({
  name: 'prompt-cache-namespace',
  appliesTo: ({ isGeneration }) => isGeneration,
  requestBody(x, body, worker) {
    const namespace = snapshots.namespaceFor(worker, headerKeyText(x.head.get(SESSION_HEADER) ?? ''));
    // No other plugin keeps a large body.
    return thread.run('withNamespace', body, kindOf(worker), namespace);
  },
});
