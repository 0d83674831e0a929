import type { CallResult, WeightStep } from '../engines/weights.ts';
import { backoff } from '../kit/backoff.ts';

/** Requests in flight go on with the new weights (async), or finish with the old ones before the swap (sync). */
export type Transition = 'async' | 'sync';

export type Stage = 'gate' | 'drain' | 'pause' | 'load' | 'label' | 'resume' | 'done' | 'error';

/** How the weights of one engine are replaced. Nothing in it changes: `next` makes another one. */
export interface SwapState {
  readonly stage: Stage;
  readonly transition: Transition;
  readonly target: string;
  /** The snapshot to go back to if the load fails; null: there is none. */
  readonly previous: string | null;
  /** Who loads: the router, or a trainer that sends the weights itself while the engine is paused. */
  readonly mover: 'router' | 'trainer';
  /** The engine has the target already, from a swap that was interrupted: it is only to be labelled and resumed. */
  readonly hasTarget: boolean;
  /** What the engine has. */
  readonly weights: 'previous' | 'target' | 'unknown';
  readonly isRollingBack: boolean;
  readonly isUndone: boolean;
  /** Failed calls of this stage. */
  readonly failures: number;
  /** Why the engine does not get the target; null: nothing went wrong so far. */
  readonly error: string | null;
  /** What went wrong without consequences for the weights: the engine did not take its label, or does not resume. */
  readonly warning: string | null;
  /** When each stage began (monotonic ms). */
  readonly beganMs: Readonly<Partial<Record<Stage, number>>>;
}

export type SwapEvent =
  | { readonly kind: 'began' }
  /** No request of the router is in flight at the engine. */
  | { readonly kind: 'drained' }
  /** The engine has answered the last call, or will not. */
  | { readonly kind: 'answered'; readonly result: CallResult; readonly detail: string }
  /** The trainer has moved the weights. */
  | { readonly kind: 'moved' }
  /** The time of `wait` is over. */
  | { readonly kind: 'waited' }
  /** The swap is not wanted any more. */
  | { readonly kind: 'undo' };

/** What is to be done; at most one of them is answered with an event later. */
export type SwapEffect =
  /** New requests wait, or are refused. */
  | { readonly kind: 'close' }
  | { readonly kind: 'open' }
  | { readonly kind: 'drain' }
  | { readonly kind: 'call'; readonly step: WeightStep; readonly what: 'target' | 'previous' }
  | { readonly kind: 'wait'; readonly ms: number }
  /** The engine is paused: the trainer may move the weights. */
  | { readonly kind: 'ready' }
  /** The engine now has this snapshot. */
  | { readonly kind: 'holds'; readonly what: 'target' | 'previous' }
  /** The engine's weights are not known: nothing may be sent to it, and its streams end. `hasDied`: it is, or will be, another process. */
  | { readonly kind: 'quarantine'; readonly hasDied: boolean }
  /** The swap has ended here, or has failed for now and goes on trying to resume. */
  | { readonly kind: 'over' };

export interface Step {
  readonly state: SwapState;
  readonly effects: readonly SwapEffect[];
}

export const LABEL_TRIES = 3;
/** After so many failures to resume, other swaps do not wait for this one any longer. It goes on trying. */
export const RESUME_TRIES = 5;
const RETRY_MS = 100;
const MAX_RETRY_MS = 5_000;

/** @param order with `weights`: what the engine has at the start */
export function planned(
  order: Pick<SwapState, 'transition' | 'target' | 'previous' | 'mover' | 'hasTarget' | 'weights'>,
  nowMs: number,
): SwapState {
  return {
    ...order,
    stage: 'gate',
    isRollingBack: false,
    isUndone: false,
    failures: 0,
    error: null,
    warning: null,
    beganMs: { gate: nowMs },
  };
}

/** The next step of one engine's swap: a decision without effects. */
export function next(state: SwapState, event: SwapEvent, nowMs: number): Step {
  const { stage } = state;
  const go = (to: Stage, change: Partial<SwapState>, ...effects: SwapEffect[]): Step => ({
    state: {
      ...state,
      failures: 0,
      ...change,
      stage: to,
      beganMs: to === stage ? state.beganMs : { ...state.beganMs, [to]: nowMs },
    },
    effects,
  });
  const call = (step: WeightStep, what: 'target' | 'previous' = 'target'): SwapEffect => ({ kind: 'call', step, what });
  const failed = (detail: string): string => state.error ?? `${stage}: ${detail}`;
  const end = (change: Partial<SwapState>, ...effects: SwapEffect[]): Step =>
    go((change.error ?? state.error) === null ? 'done' : 'error', change, ...effects, { kind: 'over' });
  const quarantine = (detail: string, hasDied = false): Step =>
    end({ error: failed(detail), weights: 'unknown' }, { kind: 'quarantine', hasDied }, { kind: 'open' });
  const labelled = (detail: string | null): Step => {
    const what = state.isRollingBack ? 'previous' : 'target';
    const warning = detail === null ? null : `label: ${detail}`;
    return go('resume', { weights: what, warning }, { kind: 'holds', what }, call('resume', what));
  };
  const same: Step = { state, effects: [] };
  const isTrainers = state.mover === 'trainer' && !state.isRollingBack;

  if (event.kind === 'undo') {
    if (stage === 'gate' || stage === 'drain')
      return state.weights === 'unknown' ? quarantine('undone') : end({ error: 'undone' }, { kind: 'open' });
    if (stage === 'pause') return go('pause', { isUndone: true });
    if (stage !== 'load' || !isTrainers) return same;
    // What the trainer has sent so far is replaced, where the engine has something to go back to.
    if (state.previous === null) return quarantine('undone');
    return go('load', { error: 'undone', isRollingBack: true }, call('load', 'previous'));
  }
  if (event.kind === 'began') {
    if (stage !== 'gate') return same;
    return state.transition === 'sync'
      ? go('drain', {}, { kind: 'close' }, { kind: 'drain' })
      : go('pause', {}, { kind: 'close' }, call('pause'));
  }
  if (event.kind === 'drained') return stage === 'drain' ? go('pause', {}, call('pause')) : same;
  if (event.kind === 'moved') return stage === 'load' && isTrainers ? go('label', {}, call('label')) : same;
  if (event.kind === 'waited') {
    if (stage === 'resume')
      return go(
        'resume',
        { failures: state.failures },
        call('resume', state.weights === 'target' ? 'target' : 'previous'),
      );
    if (stage === 'label')
      return go('label', { failures: state.failures }, call('label', state.isRollingBack ? 'previous' : 'target'));
    return same;
  }

  const { result, detail } = event;
  const isOk = result === 'ok';
  if (stage !== 'done' && stage !== 'error' && result === 'died') return quarantine(detail, true);
  if (stage === 'pause') {
    if (state.weights === 'unknown' && (!isOk || state.isUndone)) return quarantine(isOk ? 'undone' : detail);
    if (result === 'refused') return end({ error: failed(detail) }, { kind: 'open' });
    // A pause whose answer was lost may have worked; to resume is idempotent.
    if (!isOk) return go('resume', { error: failed(detail) }, call('resume', 'previous'));
    if (state.isUndone) return go('resume', { error: 'undone' }, call('resume', 'previous'));
    if (state.hasTarget) return go('label', {}, call('label'));
    if (isTrainers) return go('load', { weights: 'unknown' }, { kind: 'ready' });
    return go('load', {}, call('load'));
  }
  if (stage === 'load' && !isTrainers) {
    if (isOk) return go('label', {}, call('label', state.isRollingBack ? 'previous' : 'target'));
    // To load something else with the same call proves nothing.
    if (state.isRollingBack || result === 'other_version') return quarantine(detail);
    if (result === 'refused' && state.weights === 'previous')
      return go('resume', { error: failed(detail) }, call('resume', 'previous'));
    // The weights may be half written.
    if (state.previous === null) return quarantine(detail);
    const error = failed(detail);
    return go('load', { error, isRollingBack: true, weights: 'unknown' }, call('load', 'previous'));
  }
  if (stage === 'label') {
    // An engine without labels (vLLM before 0.33) refuses; the weights are new in any case.
    if (isOk || result === 'refused') return labelled(null);
    const failures = state.failures + 1;
    if (failures >= LABEL_TRIES) return result === 'other_version' ? quarantine(detail) : labelled(detail);
    return go('label', { failures }, { kind: 'wait', ms: RETRY_MS });
  }
  if (stage === 'resume') {
    if (isOk) return end({}, { kind: 'open' });
    const failures = state.failures + 1;
    const wait: SwapEffect = { kind: 'wait', ms: backoff(failures, RETRY_MS, MAX_RETRY_MS) };
    const warning = `resume: ${detail}`;
    return go('resume', { failures, warning }, wait, ...(failures === RESUME_TRIES ? [{ kind: 'over' } as const] : []));
  }
  return same;
}

/** How long each stage took, in ms. */
export function phasesOf({ beganMs }: SwapState): Record<string, number> {
  const began = Object.entries(beganMs).toSorted(([, a], [, b]) => a - b);
  return Object.fromEntries(
    began.slice(0, -1).map(([stage, ms], i) => [stage, Math.round((began[i + 1]![1] - ms) * 1000) / 1000]),
  );
}
