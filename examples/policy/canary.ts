import { createHash } from 'node:crypto';
import type { CustomPolicyContext, Policy } from '../../router/src/index.ts';

/**
 * Sends a share of the sessions (`CANARY_SHARE`, by default a tenth) to the workers labelled `canary: true`, to try
 * another engine version or setting, and all others to the rest. A session stays at one worker of its side.
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
      // If one side is down, the other one serves its requests.
      return base.choose(x, side.length > 0 ? side : workers);
    },
  };
}

/** A key always maps to the same point of [0, 1), in every router and after a restart. */
function pointOf(key: string): number {
  return createHash('sha256').update(key).digest().readUInt32BE(0) / 2 ** 32;
}
