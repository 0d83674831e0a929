import { Unreadable } from '../generation/delta.ts';
import type { AnswerPlan } from './choice.ts';
import { chunkedAnswer } from './chunked-answer.ts';
import { type FieldProblem, type RolloutFields, readFields } from './fields.ts';
import { type PerfMetrics, wholeAnswer } from './whole-answer.ts';

/** A changed response. `bytes` null: it can't be changed. `problem`: what the engine did not return; null otherwise. */
export interface Changed {
  readonly bytes: Buffer | null;
  readonly problem: string | null;
}

/** What is done on another thread where it is large. */
export const answerCalls = {
  fields: (body: Buffer, isChat: boolean, isRollout: boolean): RolloutFields | FieldProblem | null =>
    readFields(body, isChat, isRollout),
  whole: (body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): Changed =>
    attempted(() => wholeAnswer(body, plan, perf)),
  chunked: (body: Buffer, plan: AnswerPlan, perf: PerfMetrics | null): Changed =>
    attempted(() => chunkedAnswer(body, plan, perf)),
} as const;

function attempted(change: () => Buffer | null): Changed {
  try {
    return { bytes: change(), problem: null };
  } catch (error) {
    if (error instanceof Unreadable) return { bytes: null, problem: error.message };
    throw error;
  }
}
