import type { PairKind } from '../../config/pairs.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import type { BodyThread } from '../body-calls.ts';
import type { PairStyle } from './pair-plan.ts';
import { MooncakeEngines } from './mooncake-engines.ts';
import { sglangPairs } from './sglang-pairs.ts';
import { type VllmPairOptions, mooncakePairs, nixlPairs } from './vllm-pairs.ts';

/** @returns null: engines are not paired */
export function pairStyleOf(
  kind: PairKind | null,
  options: VllmPairOptions,
  clock: CoarseClock,
  thread: BodyThread,
): PairStyle | null {
  if (kind === 'nixl') return nixlPairs(options, thread);
  if (kind === 'mooncake') return mooncakePairs(options, new MooncakeEngines(clock), thread);
  return kind === null ? null : sglangPairs(thread);
}
