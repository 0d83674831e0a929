/**
 * Who did what with which request: written down at both ends of the router, compared when a request is over.
 *
 * A request may end in a whole answer, in an error that says so, or in an answer that is visibly cut. Anything else is a
 * complaint; so is work that an engine was given twice without a reason.
 */

export type ExecutionEnd =
  | 'running'
  /** All of the answer was sent. */
  | 'whole'
  /** The engine broke off. */
  | 'cut'
  /** The router closed the connection first. */
  | 'gone';

/** One engine's work on one request. */
export interface Execution {
  readonly id: number;
  readonly engine: string;
  readonly startMs: number;
  /** What was meant to go wrong, for people. */
  readonly fault: string;
  /** Its engine had stood still: the request may have lain in the system since before. */
  readonly isLateRead: boolean;
  endMs: number;
  end: ExecutionEnd;
  /** All of the request was read: from here the engine works. */
  isRequestRead: boolean;
  /** What it answers with, as it is framed: where the framing lies, what the lie makes of it. */
  status: number;
  payload: string;
  /** The head of the answer was handed to the system. */
  isHeadSent: boolean;
  /** Nothing was sent for so long that a time-out may end it. */
  isStalled: boolean;
  /** A kill may have lost bytes that were sent before it. */
  isDoubtful: boolean;
  /** What it answers is not HTTP, or breaks its own framing. */
  isMalformed: boolean;
}

export type ClientEnd =
  | { readonly kind: 'whole'; readonly status: number; readonly payload: string; readonly error: string }
  /** The connection ended before the answer did. `bytes`: of the answer, its head too. */
  | { readonly kind: 'cut'; readonly bytes: number; readonly payload: string }
  /** Neither came in time. */
  | { readonly kind: 'nothing' }
  | { readonly kind: 'left' };

export interface RequestRecord {
  readonly id: number;
  readonly startMs: number;
  readonly executions: Execution[];
  end: ClientEnd | null;
  endMs: number;
}

export interface Rules {
  /** Executions that one request may have in all, apart from one that a kept connection broke off. */
  readonly maxExecutions: number;
  readonly retryStatuses: readonly number[];
  /** From this age on the router may end a request on time grounds. */
  readonly timeoutMs: number;
}

/** An error event that the router puts behind what it has passed on of a stream. */
const LAST_WORDS = /data: \{"error":.*\}\n\n$/;
const TIMEOUTS = new Set(['request_timeout', 'first_byte_timeout', 'stream_idle_timeout']);

/** The engine broke off, or may have, before the router can have seen the head of an answer. */
const failedBeforeAnswer = ({ end, isHeadSent, isDoubtful }: Execution): boolean =>
  isDoubtful || (end === 'cut' && !isHeadSent);

/** @returns what is wrong with a request that is over at both ends. */
export function judge(record: RequestRecord, rules: Rules): string[] {
  const executions = record.executions.filter(({ isRequestRead }) => isRequestRead);
  return [...judgeExecutions(executions, record.endMs, rules), ...judgeEnd(record, rules)].map(
    (text) => `request ${record.id}: ${text}`,
  );
}

function judgeExecutions(executions: readonly Execution[], endMs: number, rules: Rules): string[] {
  const wrong: string[] = [];
  if (executions.some(({ startMs, isLateRead }) => startMs > endMs + GRACE_MS / 2 && !isLateRead))
    wrong.push('duplicated: reached an engine after its end');
  const brokenOff = executions.slice(0, -1).filter((each) => each.end !== 'whole' && failedBeforeAnswer(each)).length;
  // One that breaks off on a kept connection can't be told from one that has closed it for being idle: that is no try.
  const most = rules.maxExecutions + Math.min(brokenOff, 1);
  if (executions.length > most) wrong.push(`duplicated: executed ${executions.length} times`);
  if (brokenOff > 1) wrong.push('duplicated: sent to more than one other engine after a reset');
  for (const [index, next] of executions.entries()) {
    const earlier = executions[index - 1];
    if (earlier === undefined) continue;
    if (earlier.end === 'running' || earlier.endMs > next.startMs) wrong.push('duplicated: executed twice at once');
    else if (!failedBeforeAnswer(earlier) && !(earlier.end === 'whole' && rules.retryStatuses.includes(earlier.status)))
      wrong.push(`duplicated: executed again after an execution that ended "${earlier.end}", status ${earlier.status}`);
  }
  return wrong;
}

function judgeEnd(record: RequestRecord, rules: Rules): string[] {
  const { end, executions } = record;
  const last = executions.at(-1);
  const isOld = record.endMs - record.startMs >= rules.timeoutMs;
  if (end === null || end.kind === 'nothing') return ['lost: the client got neither an answer nor an end'];
  if (end.kind === 'left') return [];
  if (end.kind === 'whole' && end.error !== '') {
    if (end.status < 400) return [`wrong: an error with status ${end.status}`];
    const isServed = last !== undefined && last.end === 'whole' && !last.isDoubtful && !last.isMalformed;
    if (isServed && !TIMEOUTS.has(end.error) && !rules.retryStatuses.includes(last.status))
      return [`lost: an engine answered ${last.status}, the client got ${end.error}`];
    return [];
  }
  if (end.kind === 'whole') {
    if (last === undefined) return ['wrong: an answer that no engine gave'];
    const isAnswerOf = (each: Execution): boolean => each.status === end.status && each.payload === end.payload;
    if (isAnswerOf(last)) return last.end === 'cut' ? ['wrong: a cut answer looks complete'] : [];
    // Where all were tried, the last status that an engine gave may stand for a failure after it.
    if (
      executions.some((each) => isAnswerOf(each) && each.end === 'whole' && rules.retryStatuses.includes(each.status))
    )
      return [];
    const isTruncated = executions.some((each) => each.status === end.status && each.payload.startsWith(end.payload));
    return [
      isTruncated
        ? `wrong: a truncated answer looks complete (${end.payload.length} bytes)`
        : `wrong: not its own answer (${end.status}, ${end.payload.slice(0, 100)})`,
    ];
  }
  if (end.bytes === 0) return ['lost: the connection was closed without an answer'];
  if (last === undefined) return ['lost: cut without an engine'];
  const got = end.payload.replace(LAST_WORDS, '');
  if (!last.payload.startsWith(got)) return [`wrong: what came before the cut is not its own (${got.slice(-100)})`];
  const isEnginesFault = last.end === 'cut' || last.isDoubtful || last.isMalformed;
  if (isEnginesFault || last.isStalled || isOld) return [];
  return [
    `lost: cut, although its engine ${last.end === 'whole' ? 'sent all of it' : `did not break off ("${last.end}")`}`,
  ];
}

export interface JournalCounts {
  requests: number;
  whole: number;
  /** Whole answers of engines with an error status. */
  engineErrors: number;
  /** The router's own errors, by code. */
  errors: Map<string, number>;
  cut: number;
  left: number;
  executions: number;
  /** Executions beyond the first of a request. */
  again: number;
}

/** How long an engine may go on with a request whose client has its end. Longer than any stall of an engine. */
const LINGER_MS = 20_000;
/** What was on its way to an engine when its client had its end arrives within this time. */
const GRACE_MS = 1_500;

export class Journal {
  readonly complaints: string[] = [];
  readonly counts: JournalCounts = {
    requests: 0,
    whole: 0,
    engineErrors: 0,
    errors: new Map(),
    cut: 0,
    left: 0,
    executions: 0,
    again: 0,
  };
  readonly #rules: Rules;
  /** Requests that are not over at both ends. */
  readonly #open = new Map<number, RequestRecord>();
  #nextId = 1;
  #stalledMs = -Infinity;

  constructor(rules: Rules) {
    this.#rules = rules;
  }

  get openCount(): number {
    return this.#open.size;
  }

  begin(nowMs: number): RequestRecord {
    const record: RequestRecord = { id: this.#nextId++, startMs: nowMs, executions: [], end: null, endMs: 0 };
    this.#open.set(record.id, record);
    this.counts.requests++;
    return record;
  }

  /** An engine has read a request's head. */
  execute(from: Pick<Execution, 'id' | 'engine' | 'startMs' | 'fault' | 'isLateRead'>): Execution {
    const { id } = from;
    const execution: Execution = {
      ...from,
      endMs: 0,
      end: 'running',
      isRequestRead: false,
      status: 0,
      payload: '',
      isHeadSent: false,
      isStalled: false,
      isDoubtful: false,
      isMalformed: false,
    };
    const record = this.#open.get(id);
    if (record === undefined) this.complain(`request ${id}: duplicated: reached an engine after its end`);
    else record.executions.push(execution);
    return execution;
  }

  isOver(id: number): boolean {
    return this.#open.get(id)?.end !== null;
  }

  end(record: RequestRecord, end: ClientEnd, nowMs: number): void {
    if (record.end !== null) {
      this.complain(`request ${record.id}: duplicated: the client got two ends (${record.end.kind}, ${end.kind})`);
      return;
    }
    record.end = end;
    record.endMs = nowMs;
  }

  complain(text: string): void {
    this.complaints.push(text);
  }

  /** Judges what is over at both ends. `isStalled`: an engine stands still, and may have requests that it has not read. */
  sweep(nowMs: number, isStalled: boolean): void {
    if (isStalled) this.#stalledMs = nowMs;
    const settledMs = nowMs < this.#stalledMs + GRACE_MS ? -Infinity : nowMs - GRACE_MS;
    for (const record of this.#open.values()) {
      if (record.end === null || record.endMs > settledMs) continue;
      const running = record.executions.filter(({ end }) => end === 'running');
      if (running.length > 0 && nowMs - record.endMs < LINGER_MS) continue;
      this.#open.delete(record.id);
      for (const { engine } of running)
        this.complain(
          `request ${record.id}: leaked: ${engine} still works for it, ${LINGER_MS / 1000} s after its end`,
        );
      for (const text of judge(record, this.#rules)) this.complain(`${text}\n  ${describe(record)}`);
      this.#count(record);
    }
  }

  #count({ end, executions }: RequestRecord): void {
    const { counts } = this;
    const executed = executions.filter(({ isRequestRead }) => isRequestRead).length;
    counts.executions += executed;
    counts.again += Math.max(0, executed - 1);
    if (end?.kind === 'cut') counts.cut++;
    else if (end?.kind === 'left') counts.left++;
    else if (end?.kind === 'whole') {
      if (end.error !== '') counts.errors.set(end.error, (counts.errors.get(end.error) ?? 0) + 1);
      else if (end.status >= 400) counts.engineErrors++;
      else counts.whole++;
    }
  }
}

function describe({ executions, end, startMs, endMs }: RequestRecord): string {
  const did = executions.map((each) => {
    const marks = [
      each.isRequestRead ? '' : 'request not read',
      each.isHeadSent ? '' : 'no head',
      each.isStalled ? 'stalled' : '',
      each.isDoubtful ? 'doubtful' : '',
      each.isMalformed ? 'malformed' : '',
    ].filter((mark) => mark !== '');
    const span = `${Math.round(each.startMs - startMs)}–${Math.round(each.endMs - startMs)} ms`;
    return `${each.engine} ${span} ${each.end} ${each.status} [${each.fault}] ${marks.join(', ')}`;
  });
  const kind = end === null ? 'no end' : end.kind === 'whole' ? `whole ${end.status} ${end.error}` : end.kind;
  return `client: ${kind} after ${Math.round(endMs - startMs)} ms; engines: ${did.join(' | ') || 'none'}`;
}
