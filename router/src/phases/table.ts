import { Worker } from '../fleet/worker.ts';
import type { ResponseObserver } from '../exchange.ts';
import type {
  AttemptFailure,
  NoPart,
  PluginAnswer,
  PluginRefusal,
  PluginRoutes,
  ValueCutter,
  ValueTaker,
} from '../plugin.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { KeyKind } from '../placed-request.ts';
import type { ExchangeView } from './exchange-view.ts';

/**
 * When a phase returns, and what a fault of it does.
 * - `at_once`: it returns at once; a fault fails its request;
 * - `in_time`: it may return a promise, for at most the plugin timeout; a fault fails its request;
 * - `unheeded`: a fault is counted and changes nothing.
 */
export type Timing = 'at_once' | 'in_time' | 'unheeded';

export interface PhaseSpec<Call = unknown> {
  readonly timing: Timing;
  /** For the guide: the names of the arguments, when the phase runs, and what it may do. */
  readonly args: string;
  readonly when: string;
  readonly does: string;
  /** What is wrong with a value that the phase returned; null: nothing. */
  readonly problemOf: ProblemOf;
  /** Never there: it carries the type. */
  readonly call?: Call;
}

export type ProblemOf = (answer: never, ...args: never[]) => string | null;

/** What is wrong with values that phases returned: null: nothing. */
const problemOfBytes = (answer: unknown): string | null =>
  Buffer.isBuffer(answer) ? null : 'has to answer with a Buffer';

const isTarget = (target: unknown): boolean =>
  typeof target === 'string' && /^(?:\/[\x21-\x7e\x80-\xff]*|\*)$/.test(target);

const problemOfRetarget = (_answer: unknown, { head }: ExchangeView): string | null =>
  isTarget(head.target) ? null : 'has to set x.head.target to a path with its query, without spaces and line ends';

function problemOfBody(answer: unknown, { engineTarget }: ExchangeView): string | null {
  if ((engineTarget ?? null) === null || isTarget(engineTarget)) return problemOfBytes(answer);
  return 'has to set x.engineTarget to null, or to a path with its query, without spaces and line ends';
}

const kinds: ReadonlySet<unknown> = new Set<KeyKind>(['session', 'tenant', 'request', 'content']);

/** What is wrong with what plugins set of a request before it is placed; null: nothing. */
export function problemOfFacts({ key, group, model, isLastTurn, target }: ExchangeView): string | null {
  const isKey = key === null || (kinds.has(key?.kind) && typeof key.value === 'string');
  if (!isKey)
    return 'has to set x.key to null, or to { kind, value, source } with a kind of KeyKind and a text as value';
  if (typeof group !== 'string' || typeof model !== 'string') return 'has to set x.group and x.model to texts';
  if (typeof isLastTurn !== 'boolean') return 'has to set x.isLastTurn to true or false';
  return target === null || target instanceof Worker
    ? null
    : 'has to set x.target to null, or to a worker of the fleet';
}

function problemOfRefusal(answer: PluginRefusal | null | undefined): string | null {
  if (answer === null || answer === undefined) return null;
  const { status, message } = answer;
  const isRefusal = Number.isInteger(status) && status >= 400 && status < 600 && typeof message === 'string';
  return isRefusal ? null : 'has to answer with null, or with { status: 400 to 599, message }';
}

function problemOfAnswer(answer: PluginAnswer | null | undefined): string | null {
  if (answer === null || answer === undefined) return null;
  const { status, contentType, body } = answer;
  const isAnswer = Number.isInteger(status) && status >= 200 && status < 600;
  return isAnswer && typeof contentType === 'string' && Buffer.isBuffer(body)
    ? null
    : 'has to answer with null, or with { status: 200 to 599, contentType, body: a Buffer }';
}

function problemOfChoice(answer: readonly Worker[], _x: unknown, workers: readonly Worker[]): string | null {
  const isChoice = Array.isArray(answer) && answer.every((worker) => workers.includes(worker as Worker));
  return isChoice ? null : 'has to answer with some of the workers that it was given';
}

function problemOfListener(answer: ResponseObserver | null | undefined): string | null {
  return answer === null || answer === undefined || typeof answer.observe === 'function'
    ? null
    : 'must return null or { observe(bytes, start, end) }';
}

type Guide = readonly [args: string, when: string, does: string];

const phase =
  (timing: Timing) =>
  <Call>([args, when, does]: Guide, problemOf: ProblemOf = () => null): PhaseSpec<Call> => ({
    timing,
    args,
    when,
    does,
    problemOf,
  });
const atOnce = phase('at_once');
const inTime = phase('in_time');
const unheeded = phase('unheeded');

type X = ExchangeView;
type Later<Value> = Value | Promise<Value>;

/**
 * The phases of plugins, in the order in which a request meets them. Types, guards, metric labels and the guide's list are made from this
 * table. A new phase is a line here and the call where it runs: `x.plugins.tell('name', …)`, or another method of the chain.
 */
export const phases = {
  retarget: atOnce<(x: X) => void>(
    [
      'x',
      'first',
      'replace the target in `x.head.target`, as if the client had sent that; access control and all later stages use the new target',
    ],
    problemOfRetarget,
  ),
  appliesTo: atOnce<(x: X) => boolean>([
    'x',
    'once, when the head is complete',
    'return whether the plugin takes part in this request',
  ]),
  classify: inTime<(x: X) => Later<void | NoPart>>(
    [
      'x',
      'before the queue',
      'set `x.key`, `x.group`, `x.model`, `x.isLastTurn`, `x.target`; a value that is set here is not read from the request. Return `{ takesPart: false }` if only the body could say that the plugin has no part in the request',
    ],
    (_answer: unknown, x: ExchangeView) => problemOfFacts(x),
  ),
  admit: inTime<(x: X) => Later<PluginRefusal | null>>(
    [
      'x',
      'next',
      'refuse the request: `{ status, message, retryAfterSecs? }`; null admits it. The client gets `x-turnout-error: plugin_refused`',
    ],
    problemOfRefusal,
  ),
  answer: inTime<(x: X) => Later<PluginAnswer | null>>(
    [
      'x',
      'next',
      'respond in place of an engine: `{ status, contentType, body }`; null sends the request to an engine',
    ],
    problemOfAnswer,
  ),
  choose: atOnce<(x: X, workers: readonly Worker[]) => readonly Worker[]>(
    [
      'x, workers',
      'before every attempt',
      'return the workers that may get the request; the policy chooses among them. Return one worker to decide alone. Workers in `x.tried` are excluded afterwards',
    ],
    problemOfChoice,
  ),
  requestBody: inTime<(x: X, body: Buffer, worker: Worker) => Later<Buffer>>(
    [
      'x, body, worker',
      'for every attempt, with the whole body',
      'return the body for this worker; it may set `x.engineTarget`, the path and query for this attempt',
    ],
    problemOfBody,
  ),
  observeResponse: atOnce<(x: X, head: ResponseHead) => ResponseObserver | null>(
    ['x, head', "when the engine's response begins", 'return `{ observe(bytes, start, end) }` to observe it, or null'],
    problemOfListener,
  ),
  responseHead: atOnce<(x: X, head: ResponseHead) => void>(['x, head', 'next', 'change fields of the response head']),
  cutValues: atOnce<(x: X, head: ResponseHead, taker: ValueTaker) => ValueCutter | null>([
    'x, head, taker',
    'next, if no other plugin changes the response and the plugin has `beforeValue`',
    'take values that are too large to be kept out of what `responseEvent` or `responseBody` gets: return `{ push(bytes, start, end) }`, which passes the rest and the values to the `taker`',
  ]),
  beforeValue: inTime<(x: X, beginning: Buffer) => Later<Buffer>>(
    [
      'x, beginning',
      'when such a value begins',
      'return what is sent of the event or body before the value, up to and with the mark of the value. Without the mark the value is not sent',
    ],
    problemOfBytes,
  ),
  responseEvent: inTime<(x: X, event: Buffer) => Later<Buffer>>(
    [
      'x, event',
      'for each event of an event stream',
      'return the event to send, now or later; an empty buffer drops it',
    ],
    problemOfBytes,
  ),
  responseBody: inTime<(x: X, body: Buffer) => Later<Buffer>>(
    ['x, body', 'for any other response, when it is complete', 'return the body to send, now or later'],
    problemOfBytes,
  ),
  attemptFailed: unheeded<(x: X, failure: AttemptFailure) => void>([
    'x, failure',
    'after each attempt that failed before a response',
    'read `failure.worker`, `failure.failure` (`connect`, `reset`, `status` …), `failure.detail`, `failure.willRetry`',
  ]),
  finished: unheeded<(x: X) => void>([
    'x',
    'once, after the request',
    'read `x.outcome` (`complete`, `refused`, `cut`, `client_left`), `x.status`, `x.worker`, `x.error`',
  ]),
} as const;

/** What the router calls outside of requests. */
export const services = {
  routes: atOnce<(routes: PluginRoutes) => void>(['routes', 'at the start', 'add endpoints']),
  close: inTime<() => Later<void>>(['', 'when the router stops', 'release what the plugin holds']),
} as const;

export type PhaseName = keyof typeof phases;
export type MemberName = PhaseName | keyof typeof services;

/** As methods: a plugin of the router itself may take the whole `Exchange`. */
type Method<Spec> =
  Spec extends PhaseSpec<infer Call extends (...args: never[]) => unknown>
    ? { call(...args: Parameters<Call>): ReturnType<Call> }['call']
    : never;

export type Phases = { [Name in PhaseName]?: Method<(typeof phases)[Name]> } & {
  [Name in keyof typeof services]?: Method<(typeof services)[Name]>;
};

export const members: Readonly<Record<MemberName, PhaseSpec>> = { ...phases, ...services };
export const memberNames = Object.keys(members) as readonly MemberName[];

/** The metric label of a phase. */
export const labelOf = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
