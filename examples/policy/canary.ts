import { createHash } from 'node:crypto';
import type { CustomPolicyContext, Policy } from '../../router/src/index.ts';

/**
 * Sends a share of the sessions (`CANARY_SHARE`, a tenth unless told otherwise) to the workers labelled `canary: true`, for
 * trying another engine version or setting, and all others to the rest. On its side a session stays at one worker.
 */
export default function canary(context: CustomPolicyContext): Policy {
  const share = Number(process.env['CANARY_SHARE'] ?? 0.1);
  if (!(share >= 0 && share <= 1)) throw new Error('CANARY_SHARE has to be between 0 and 1');
  const base = context.builtIn('sticky_least_loaded');
  return {
    ...base,
    choose(x, workers) {
      const isCanary = x.key !== null && pointOf(x.key.value) < share;
      const side = workers.filter(({ labels }) => (labels['canary'] === 'true') === isCanary);
      // A side that is down must not fail anybody.
      return base.choose(x, side.length > 0 ? side : workers);
    },
  };
}

/** The same key always falls on the same point of [0, 1): in every router, and after a restart. */
function pointOf(key: string): number {
  return createHash('sha256').update(key).digest().readUInt32BE(0) / 2 ** 32;
}
