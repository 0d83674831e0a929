import type { ResponseObserver, Exchange } from '../exchange.ts';
import { TimeLimit } from '../kit/time-limit.ts';
import { type Plugin, type PluginPhases, Refused } from '../plugin.ts';
import { type ListenerGuard, guardListener } from './guard-listener.ts';
import { type MemberName, type Timing, memberNames, members } from './table.ts';

/** Learns of a plugin's fault: in which phase, and how often that phase has failed. */
export type OnPluginFault = (plugin: string, phase: MemberName, error: unknown, count: number) => void;

export interface GuardOptions {
  readonly timeoutMs: number;
}

type Call = (...args: unknown[]) => unknown;

/**
 * Confines the faults of a plugin: a phase that throws, returns a wrong value or takes too long is reported and fails its exchange only,
 * as its `Timing` says.
 */
export function guardPlugin(name: string, plugin: PluginPhases, options: GuardOptions, onFault: OnPluginFault): Plugin {
  const counts = new Map<MemberName, number>();
  const report = (phase: MemberName, error: unknown): void => {
    if (error instanceof Refused) return;
    const count = (counts.get(phase) ?? 0) + 1;
    counts.set(phase, count);
    onFault(name, phase, error, count);
  };
  const check = (phase: MemberName, answer: unknown, args: readonly unknown[]): void => {
    const problem = (members[phase].problemOf as (...all: readonly unknown[]) => string | null)(answer, ...args);
    if (problem !== null) throw new TypeError(`${phase}() ${problem}`);
  };

  const guards: Readonly<Record<Timing, (phase: MemberName, call: Call) => Call>> = {
    at_once:
      (phase, call) =>
      (...args) => {
        try {
          const answer = call.apply(plugin, args);
          if (isPromise(answer)) {
            // Nothing else waits for it: a rejection would end the process.
            answer.then(undefined, () => {});
            throw new TypeError(`${phase}() has to answer at once, and answered with a promise`);
          }
          check(phase, answer, args);
          return answer;
        } catch (error) {
          report(phase, error);
          throw error;
        }
      },
    in_time:
      (phase, call) =>
      (...args) => {
        const checked = (answer: unknown): unknown => {
          check(phase, answer, args);
          return answer;
        };
        const [x] = args as [Exchange?];
        // How long the client takes to send its body is no fault of the plugin; `--client-body-timeout-secs` limits it.
        const began = (): number | null => {
          if (x === undefined) return -Infinity;
          return x.outcome === null ? x.body.awaitedUntilMs : null;
        };
        const failed = (error: unknown): never => {
          // After its client disconnected, a phase may fail because the body that it waits for never came.
          if (x === undefined || x.outcome === null) report(phase, error);
          throw error;
        };
        try {
          const answer = call.apply(plugin, args);
          if (!isPromise(answer)) return checked(answer);
          const timeoutMs = (phase === 'close' ? undefined : plugin.timeoutMs) ?? options.timeoutMs;
          return inTime(answer, timeoutMs, began).then(checked).catch(failed);
        } catch (error) {
          return failed(error);
        }
      },
    unheeded:
      (phase, call) =>
      (...args) => {
        try {
          const answer = call.apply(plugin, args);
          if (isPromise(answer)) answer.then(undefined, (error: unknown) => report(phase, error));
        } catch (error) {
          report(phase, error);
        }
      },
  };

  // A phase that a plugin lacks must be lacking here: a phase that no plugin has costs nothing.
  const guarded: Record<string, unknown> = { name };
  for (const phase of memberNames) {
    const call = plugin[phase] as Call | undefined;
    if (call) guarded[phase] = guards[members[phase].timing](phase, call);
  }
  const { pathPrefix, takesEmptyBodies, isInnermost, timeoutMs, maxBodyBytes } = plugin;
  const made: { -readonly [Key in keyof Plugin]: Plugin[Key] } = {
    ...(guarded as unknown as Plugin),
    ...(pathPrefix !== undefined && { pathPrefix }),
    ...(takesEmptyBodies && { takesEmptyBodies }),
    ...(isInnermost && { isInnermost }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(maxBodyBytes !== undefined && { maxBodyBytes }),
  };
  const { observeResponse, close } = made;
  if (observeResponse !== undefined) {
    const guard: ListenerGuard = {
      timeoutMs: () => timeoutMs ?? options.timeoutMs,
      report: (e) => report('observeResponse', e),
    };
    made.observeResponse = (x, head) => {
      const listener: ResponseObserver | null = observeResponse(x, head) ?? null;
      return listener === null ? null : guardListener(x, listener, guard);
    };
  }
  // The other plugins are to be closed too; the fault is reported.
  if (close !== undefined) made.close = async () => Promise.resolve(close()).catch(() => {});
  return made;
}

const isPromise = (answer: unknown): answer is Promise<unknown> =>
  typeof (answer as { then?: unknown } | null | undefined)?.then === 'function';

/** How often it is looked whether an answer is still waited for: until then the exchange and its body stay in memory. */
const LOOK_MS = 1_000;

/**
 * Bounds the time of a promise; what it resolves to later is dropped.
 *
 * @param began when the time begins anew (monotonic ms); Infinity: it has not begun; null: the answer is of no use any more
 */
export function inTime<Answer>(
  answer: PromiseLike<Answer>,
  timeoutMs: number,
  began: () => number | null = () => -Infinity,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const startMs = performance.now();
    const expire = (): void => {
      const beganMs = began();
      const leftMs = beganMs === null ? 0 : Math.max(startMs, beganMs) + timeoutMs - performance.now();
      if (leftMs > 0) limit = new TimeLimit(Math.min(leftMs, LOOK_MS), expire);
      else reject(new Error(`gave no answer within ${timeoutMs} ms (--plugin-timeout-ms)`));
    };
    let limit = new TimeLimit(Math.min(timeoutMs, LOOK_MS), expire);
    answer.then(
      (value) => {
        limit.clear();
        resolve(value);
      },
      (error: Error) => {
        limit.clear();
        reject(error);
      },
    );
  });
}
