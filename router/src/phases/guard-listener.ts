import type { ResponseObserver } from '../exchange.ts';
import { TimeLimit } from '../kit/time-limit.ts';
import type { ExchangeView } from './exchange-view.ts';

export interface ListenerGuard {
  readonly timeoutMs: () => number;
  readonly report: (error: unknown) => void;
}

/** What calls `observe` reports what it throws: a call between the two would run for each read. */
export interface GuardedObserver extends ResponseObserver {
  report?(error: unknown): void;
}

/** Confines the faults of a listener: it can't stop a response for longer than the plugin timeout. */
export function guardListener(x: ExchangeView, listener: ResponseObserver, guard: ListenerGuard): GuardedObserver {
  return {
    observe: listener.observe.bind(listener),
    report: guard.report,
    ...(listener.isBehind && { isBehind: guardIsBehind(x, listener, guard) }),
    ...(listener.holds && { holds: guardHolds(x, listener, guard) }),
  };
}

/** A listener that never catches up would stop its response forever: after the timeout it is not asked any more. */
function guardIsBehind(x: ExchangeView, listener: ResponseObserver, guard: ListenerGuard) {
  let isGivenUp = false;
  return (resume: () => void): boolean => {
    if (isGivenUp) return false;
    const timeoutMs = guard.timeoutMs();
    let limit: TimeLimit | undefined;
    const giveUp = (error: unknown): void => {
      isGivenUp = true;
      guard.report(error);
    };
    try {
      const isBehind = listener.isBehind!(() => {
        limit?.clear();
        resume();
      });
      if (!isBehind) return false;
    } catch (error) {
      giveUp(error);
      return false;
    }
    limit = new TimeLimit(timeoutMs, () => {
      if (x.outcome !== null) return;
      giveUp(new Error(`isBehind() was true for ${timeoutMs} ms (--plugin-timeout-ms)`));
      resume();
    }).unref();
    return true;
  };
}

/** What a listener holds is sent after the timeout in any case. */
function guardHolds(x: ExchangeView, listener: ResponseObserver, guard: ListenerGuard) {
  return (isWhole: boolean, release: () => void): boolean => {
    const timeoutMs = guard.timeoutMs();
    let limit: TimeLimit | undefined;
    let isReleased = false;
    const releaseOnce = (): void => {
      limit?.clear();
      if (!isReleased) release();
      isReleased = true;
    };
    try {
      if (!listener.holds!(isWhole, releaseOnce) || isReleased) return false;
    } catch (error) {
      guard.report(error);
      return false;
    }
    limit = new TimeLimit(timeoutMs, () => {
      if (x.outcome === null) guard.report(new Error(`held an answer for ${timeoutMs} ms (--plugin-timeout-ms)`));
      releaseOnce();
    }).unref();
    return true;
  };
}
