import fc from '../harness/fast-check.ts';
import type { EngineKind } from './engines.ts';
import { respelled, sampledPieces, sayings, stopped } from './hard-text.ts';

/** What happens to a call, at a moment that the plan names. */
export type Mishap = 'none' | 'engine dies' | 'aborted' | 'updated' | 'router dies' | 'router dies after';

/** One call of a client. */
export interface Step {
  /** So many calls back is the one that it goes on from; more than there were: it begins anew. */
  readonly back: number;
  /** Percent of the answer's tokens that it goes on from. */
  readonly kept: number;
  /** What the client writes behind an answer that ended by itself, and behind one that did not. */
  readonly closing: string;
  /** '': the client wants more of the same answer. */
  readonly say: string;
  readonly answer: readonly number[];
  readonly isStopped: boolean;
  readonly isStream: boolean;
  readonly asksLogprobs: boolean;
  readonly client: 'waits' | 'goes on at the finish' | 'leaves at the finish' | 'leaves';
  readonly mishap: Mishap;
  /** Percent of the answer's tokens, when the client leaves or the mishap comes. */
  readonly at: number;
}

/** A trajectory that a client wants: its calls, one after the other. */
export type Script = readonly Step[];

/** Samples of one prompt. */
export interface Group {
  readonly isNamed: boolean;
  readonly samples: readonly Script[];
}

export interface Plan {
  readonly engines: readonly EngineKind[];
  readonly groups: readonly Group[];
  /** The router is a process with a data folder, which is killed where its calls say so. */
  readonly isKilled: boolean;
}

/** Which faults a plan may have, and how often: so many of a hundred calls. */
export interface Faults {
  readonly leaves?: number;
  readonly races?: number;
  readonly mishaps?: Readonly<Partial<Record<Mishap, number>>>;
  /** Of a hundred plans so many have a router that is killed. */
  readonly killed?: number;
}

const pick = <T>(list: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...list);

/** The first has the weight that is left of a hundred. */
function mostly<T>(usual: T, others: readonly (readonly [T, number])[]): fc.Arbitrary<T> {
  const left = 100 - others.reduce((sum, [, weight]) => sum + weight, 0);
  return fc.oneof(
    { arbitrary: fc.constant(usual), weight: left },
    ...others.map(([value, weight]) => ({ arbitrary: fc.constant(value), weight })),
  );
}

const said = fc.array(pick(sayings), { minLength: 1, maxLength: 2 }).map((parts) => parts.join(' '));
const sampled = fc.array(pick(sampledPieces), { minLength: 1, maxLength: 5 }).map((parts) => parts.flat());

function stepOf({ leaves = 0, races = 0, mishaps = {} }: Faults): fc.Arbitrary<Step> {
  return fc.record({
    back: mostly(0, [
      [1, 8],
      [2, 4],
      [9, 4],
    ]),
    kept: mostly(100, [
      [50, 3],
      [90, 3],
    ]),
    closing: mostly('<|im_end|>\n', [
      ['\n', 8],
      ['', 4],
    ]),
    say: said,
    answer: sampled,
    isStopped: mostly(true, [[false, 25]]),
    isStream: fc.boolean(),
    asksLogprobs: fc.constant(true),
    client: mostly<Step['client']>('waits', [
      ['leaves', leaves],
      ['goes on at the finish', races],
      ['leaves at the finish', races],
    ]),
    mishap: mostly<Mishap>('none', Object.entries(mishaps) as [Mishap, number][]),
    at: fc.integer({ min: 0, max: 100 }),
  });
}

/** What is almost the same as a step of the others. */
const twists = {
  own: (step) => [step],
  shorter: (step) => [{ ...step, answer: firstHalf(step), isStopped: false }],
  longer: (step) => [{ ...step, answer: [...step.answer, ...sampledPieces[0]!] }],
  respelled: (step) => [{ ...step, answer: respelled(step.answer) }],
  'not stopped': (step) => [{ ...step, isStopped: false }],
  // The same tokens, of two calls.
  split: (step) => {
    const first = firstHalf(step);
    const rest = step.answer.slice(first.length);
    if (rest.length === 0) return [step];
    return [
      { ...step, answer: first, isStopped: false },
      { ...step, back: 0, kept: 100, closing: '', say: '', answer: rest },
    ];
  },
  // Asked twice, with the same answer; whatever comes next may be meant for both.
  again: (step) => [step, { ...step, back: step.back + 1 }],
} satisfies Record<string, (step: Step) => Step[]>;

type Twist = keyof typeof twists;

const firstHalf = ({ answer }: Step): readonly number[] => answer.slice(0, Math.ceil(answer.length / 2));

/** Several trajectories that share their first calls, to the token or almost, and go apart. */
function groupOf(step: fc.Arbitrary<Step>): fc.Arbitrary<Group> {
  const sample = fc.record({
    shared: fc.integer({ min: 0, max: 3 }),
    twist: mostly<Twist>(
      'own',
      (Object.keys(twists) as Twist[]).slice(1).map((name) => [name, 13]),
    ),
    tail: fc.array(step, { maxLength: 3 }),
  });
  return fc
    .record({
      isNamed: mostly(true, [[false, 15]]),
      common: fc.array(step, { minLength: 1, maxLength: 3 }),
      samples: fc.array(sample, { minLength: 1, maxLength: 8 }),
    })
    .map(({ isNamed, common, samples }) => ({
      isNamed,
      samples: samples.map(({ shared, twist, tail }) => {
        const next = common[shared];
        return [...common.slice(0, shared), ...(next === undefined ? [] : twists[twist](next)), ...tail];
      }),
    }));
}

/** @param groups so many at most, about half as many in the mean */
export function planOf(
  engines: fc.Arbitrary<readonly EngineKind[]>,
  faults: Faults,
  groups: number,
): fc.Arbitrary<Plan> {
  const group = groupOf(stepOf(faults));
  const all = fc.array(group, { minLength: 1, maxLength: groups });
  const few = fc.array(group, { minLength: 1, maxLength: 8 });
  const { killed = 0 } = faults;
  return fc.oneof(
    { arbitrary: fc.record({ engines, groups: all, isKilled: fc.constant(false) }), weight: 100 - killed },
    { arbitrary: fc.record({ engines, groups: few, isKilled: fc.constant(true) }), weight: killed },
  );
}

export const answerOf = ({ answer, isStopped }: Step): number[] => stopped(answer, isStopped);
export const trajectoriesOf = ({ groups }: Plan): number =>
  groups.reduce((sum, { samples }) => sum + samples.length, 0);
