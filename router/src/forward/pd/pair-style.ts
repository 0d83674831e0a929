import type { PairKind } from '../../config/pairs.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import type { BodyThread } from '../body-calls.ts';
import { RouterError } from '../../kit/errors.ts';
import { after } from '../../threads/worker-thread.ts';
import { logprobsMerge } from './logprobs.ts';
import type { Handover, PairStyle, Planned } from './pair-plan.ts';
import { MooncakeEngines } from './mooncake-engines.ts';
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

/** SGLang: both engines get the same bytes at once, with the address of the prefill engine's bootstrap server and a room number. */
function sglangPairs(thread: BodyThread): PairStyle {
  const read = (answer: Buffer, isEventStream: boolean) =>
    after(thread.run('packedLists', answer, isEventStream), (lists): Handover => ({
      decode: null,
      answerMerge: logprobsMerge(lists, thread),
    }));
  return {
    plan: (path, body, { host, bootstrapPort }) =>
      after(thread.run('bootstrap', path, body, { host, port: bootstrapPort }), (made): Planned => {
        if ('code' in made) return new RouterError(made.code, made.message);
        return { prefill: made.bytes, decode: made.bytes, read: made.asksForLogprobs ? read : null };
      }),
  };
}
