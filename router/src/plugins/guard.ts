import type { AnswerEar, Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { type Plugin, type PluginAnswer, type PluginPhases, type PluginRefusal, Refused } from '../plugin.ts';

/** What is asked of a plugin, as metrics and logs name it. */
export type Phase = Exclude<keyof PluginPhases, 'takesEmptyBodies'>;

/** Hears of a plugin's fault: in which phase, and how often that one has failed by now. */
export type OnPluginFault = (plugin: string, phase: Phase, error: unknown, count: number) => void;

export interface GuardOptions {
  readonly timeoutMs: number;
}

const isBuffer = (answer: unknown): string => (Buffer.isBuffer(answer) ? '' : 'has to answer with a Buffer');
const anything = (): string => '';

/**
 * A plugin whose faults harm nobody else: what it throws, or answers beside its type, or doesn't answer in time, is reported and
 * thrown on, and fails its exchange. What only hears (an ear, `finished`) or is asked outside of exchanges (`close`) ends with
 * its fault.
 */
export function guardPlugin(name: string, plugin: PluginPhases, options: GuardOptions, onFault: OnPluginFault): Plugin {
  const counts = new Map<Phase, number>();
  const report = (phase: Phase, error: unknown): void => {
    if (error instanceof Refused) return;
    const count = (counts.get(phase) ?? 0) + 1;
    counts.set(phase, count);
    onFault(name, phase, error, count);
  };

  /** Answers at once. `problemOf`: what is wrong with its answer, '' for nothing. */
  const prompt =
    <Args extends unknown[], Answer>(
      phase: Phase,
      call: (...args: Args) => Answer,
      problemOf: (answer: Answer, ...args: Args) => string,
    ) =>
    (...args: Args): Answer => {
      try {
        const answer = call.apply(plugin, args);
        let problem = '';
        if (isPromise(answer)) {
          // What comes of it would be nobody's, and end the process.
          answer.then(undefined, () => {});
          problem = 'has to answer at once, and answered with a promise';
        } else problem = problemOf(answer, ...args);
        if (problem !== '') throw new TypeError(`${phase}() ${problem}`);
        return answer;
      } catch (error) {
        report(phase, error);
        throw error;
      }
    };

  /** May answer later, within the deadline. */
  const patient =
    <Args extends unknown[], Answer>(
      phase: Phase,
      call: (...args: Args) => Answer | Promise<Answer>,
      problemOf: (answer: Answer) => string,
    ) =>
    (...args: Args): Answer | Promise<Answer> => {
      const checked = (answer: Answer): Answer => {
        const problem = problemOf(answer);
        if (problem !== '') throw new TypeError(`${phase}() ${problem}`);
        return answer;
      };
      const failed = (error: unknown): never => {
        const [x] = args as unknown as [Exchange?];
        // Its client has gone in the meantime, perhaps with the body that the plugin waited for.
        if (x === undefined || x.outcome === null) report(phase, error);
        throw error;
      };
      try {
        const answer = call.apply(plugin, args);
        return isPromise(answer)
          ? inTime(answer, (phase === 'close' ? undefined : plugin.timeoutMs) ?? options.timeoutMs)
              .then(checked)
              .catch(failed)
          : checked(answer as Answer);
      } catch (error) {
        return failed(error);
      }
    };

  /** Its fault ends with it, now or later. */
  const calm =
    <Args extends unknown[]>(phase: Phase, call: (...args: Args) => unknown) =>
    (...args: Args): void => {
      try {
        const answer = call.apply(plugin, args);
        if (isPromise(answer)) answer.then(undefined, (error: unknown) => report(phase, error));
      } catch (error) {
        report(phase, error);
      }
    };

  const heard = (x: Exchange, ear: AnswerEar): AnswerEar => ({
    hear(bytes, start, end) {
      try {
        ear.hear(bytes, start, end);
      } catch (error) {
        report('hearAnswer', error);
        throw error;
      }
    },
    ...(ear.isBehind && { isBehind: patientEar(x, ear) }),
    ...(ear.holds && { holds: patientHold(x, ear) }),
  });

  /** One that stays behind would hold its answer for ever: after the deadline it is asked no more. */
  const patientEar = (x: Exchange, ear: AnswerEar) => {
    const timeoutMs = plugin.timeoutMs ?? options.timeoutMs;
    let isGivenUp = false;
    return (resume: () => void): boolean => {
      if (isGivenUp) return false;
      let timer: NodeJS.Timeout | undefined;
      const giveUp = (error: unknown): void => {
        isGivenUp = true;
        report('hearAnswer', error);
      };
      try {
        const isBehind = ear.isBehind!(() => {
          clearTimeout(timer);
          resume();
        });
        if (!isBehind) return false;
      } catch (error) {
        giveUp(error);
        return false;
      }
      timer = setTimeout(() => {
        if (x.outcome !== null) return;
        giveUp(new Error(`isBehind() was true for ${timeoutMs} ms (--plugin-timeout-ms)`));
        resume();
      }, timeoutMs).unref();
      return true;
    };
  };

  /** What it holds is sent after the deadline whatever it says. */
  const patientHold = (x: Exchange, ear: AnswerEar) => {
    const timeoutMs = plugin.timeoutMs ?? options.timeoutMs;
    return (isWhole: boolean, release: () => void): boolean => {
      let timer: NodeJS.Timeout | undefined;
      let isReleased = false;
      const releaseOnce = (): void => {
        clearTimeout(timer);
        if (!isReleased) release();
        isReleased = true;
      };
      try {
        if (!ear.holds!(isWhole, releaseOnce) || isReleased) return false;
      } catch (error) {
        report('hearAnswer', error);
        return false;
      }
      timer = setTimeout(() => {
        if (x.outcome === null)
          report('hearAnswer', new Error(`held an answer for ${timeoutMs} ms (--plugin-timeout-ms)`));
        releaseOnce();
      }, timeoutMs).unref();
      return true;
    };
  };

  const {
    retarget,
    appliesTo,
    classify,
    admit,
    answer,
    choose,
    requestBody,
    hearAnswer,
    responseHead,
    cutValues,
    beforeValue,
    responseEvent,
    responseBody,
  } = plugin;
  const { finished, routes, timeoutMs, close } = plugin;
  const hear = hearAnswer && prompt('hearAnswer', hearAnswer, problemOfEar);
  const end = close && patient('close', close, anything);
  return {
    name,
    // A phase that a plugin lacks must be lacking here: a feature that is off costs nothing.
    ...(plugin.takesEmptyBodies && { takesEmptyBodies: true }),
    ...(retarget && { retarget: prompt('retarget', retarget, anything) }),
    ...(appliesTo && { appliesTo: prompt('appliesTo', appliesTo, anything) }),
    ...(classify && { classify: patient('classify', classify, anything) }),
    ...(admit && { admit: patient('admit', admit, problemOfRefusal) }),
    ...(answer && { answer: patient('answer', answer, problemOfAnswer) }),
    ...(choose && { choose: prompt('choose', choose, problemOfChoice) }),
    ...(requestBody && { requestBody: patient('requestBody', requestBody, isBuffer) }),
    ...(hear && {
      hearAnswer: (...args) => {
        const ear = hear(...args) ?? null;
        return ear === null ? null : heard(args[0], ear);
      },
    }),
    ...(responseHead && { responseHead: prompt('responseHead', responseHead, anything) }),
    ...(cutValues && { cutValues: prompt('cutValues', cutValues, anything) }),
    ...(beforeValue && { beforeValue: patient('beforeValue', beforeValue, isBuffer) }),
    ...(responseEvent && { responseEvent: patient('responseEvent', responseEvent, isBuffer) }),
    ...(responseBody && { responseBody: patient('responseBody', responseBody, isBuffer) }),
    ...(finished && { finished: calm('finished', finished) }),
    ...(routes && { routes: prompt('routes', routes, anything) }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    // The others are to be closed too.
    ...(end && {
      async close() {
        try {
          await end();
        } catch {
          // Reported.
        }
      },
    }),
  };
}

const isPromise = (answer: unknown): answer is Promise<never> =>
  typeof (answer as { then?: unknown } | null | undefined)?.then === 'function';

function problemOfRefusal(answer: PluginRefusal | null | undefined): string {
  if (answer === null || answer === undefined) return '';
  const { status, message } = answer;
  const isRefusal = Number.isInteger(status) && status >= 400 && status < 600 && typeof message === 'string';
  return isRefusal ? '' : 'has to answer with null, or with { status: 400 to 599, message }';
}

function problemOfAnswer(answer: PluginAnswer | null | undefined): string {
  if (answer === null || answer === undefined) return '';
  const { status, contentType, body } = answer;
  const isAnswer = Number.isInteger(status) && status >= 200 && status < 600;
  return isAnswer && typeof contentType === 'string' && Buffer.isBuffer(body)
    ? ''
    : 'has to answer with null, or with { status: 200 to 599, contentType, body: a Buffer }';
}

function problemOfChoice(answer: readonly Worker[], _x: unknown, workers: readonly Worker[]): string {
  const isChoice = Array.isArray(answer) && answer.every((worker) => workers.includes(worker as Worker));
  return isChoice ? '' : 'has to answer with some of the workers that it was given';
}

function problemOfEar(answer: AnswerEar | null | undefined): string {
  return answer === null || answer === undefined || typeof answer.hear === 'function'
    ? ''
    : 'must return null or { hear(bytes, start, end) }';
}

/** A plugin that hangs must not keep its exchange. What it answers later is dropped. */
export function inTime<Answer>(answer: PromiseLike<Answer>, timeoutMs: number): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`gave no answer within ${timeoutMs} ms (--plugin-timeout-ms)`)),
      timeoutMs,
    );
    answer.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error: Error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
