import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { shown, tokensOf } from './hard-text.ts';
import type { Call } from './journal.ts';
import { type Move, type Reply, post } from './post.ts';
import { type Script, type Step, answerOf } from './plan.ts';
import type { Scene } from './scene.ts';

/** How long after the finish reason an engine ends its stream, at most: clients that go on at it have gone on by then. */
const END_MS = 300;
const MAX_ATTEMPTS = 20;

/** What a client can go on from. */
export interface End<State> {
  readonly call: Call | null;
  readonly state: State;
  /** The answer ended by itself. */
  readonly isStopped: boolean;
  /** The tokens of the answer that it got. */
  readonly answer: readonly number[];
}

/** What one answer says to a client. */
export interface Got {
  readonly text: string;
  /** '': it has not come. */
  readonly finish: string;
}

/** How clients of one kind ask. */
export interface Dialect<State> {
  readonly start: State;
  /** What a client has that goes on from `end`, and what of it. */
  ask(end: End<State>, step: Step, prompt: string): State;
  request(state: State, step: Step, name: string): { path: string; body: object };
  /** What a client has when an answer came. */
  answered(state: State, text: string): State;
  /** Equal for states that can't be told apart. */
  keyOf(state: State): string;
  isRerendered(state: State, step: Step): boolean;
  /** What the parts of an answer say, those of a stream one behind the other. */
  read(parts: readonly string[], isStream: boolean): Got;
}

/** One trajectory of one client: its calls, one after the other. */
export class Client<State> {
  readonly #scene: Scene;
  readonly #dialect: Dialect<State>;
  readonly #session: string;
  readonly #name: string;
  readonly #path: string;
  readonly #ends: End<State>[] = [];
  readonly #gates: (() => void)[] = [];
  #calls = 0;
  /** The last response without a token, for a failure. */
  #refusal = '';

  /** @param path before that of each request */
  constructor(scene: Scene, dialect: Dialect<State>, name: string, session: string, path = '') {
    this.#scene = scene;
    this.#dialect = dialect;
    this.#name = name;
    this.#session = session;
    this.#path = path;
  }

  get ends(): readonly End<State>[] {
    return this.#ends;
  }

  /** @param prompt what all trajectories of the group begin with */
  async run(script: Script, prompt: string): Promise<void> {
    for (const step of script) await this.#step(step, prompt);
    this.#openGates();
  }

  async #step(step: Step, prompt: string): Promise<void> {
    const start: End<State> = { call: null, state: this.#dialect.start, isStopped: false, answer: [] };
    const from = this.#ends.at(-1 - step.back) ?? start;
    for (let attempt = 0; ; attempt++) {
      assert.ok(attempt < MAX_ATTEMPTS, `${this.#name} gets no answer: ${this.#refusal}`);
      const end = await this.#ask(from, attempt === 0 ? step : { ...step, client: 'waits', mishap: 'none' }, prompt);
      if (end === null) continue;
      this.#ends.push(end);
      return;
    }
  }

  /** @returns null: nothing came */
  async #ask(from: End<State>, step: Step, prompt: string): Promise<End<State> | null> {
    const { engines, journal, router, agent, open } = this.#scene;
    const dialect = this.#dialect;
    const ids = answerOf(step);
    const name = `${this.#name}.${this.#calls++}`;
    const state = dialect.ask(from, step, prompt);
    const { path, body } = dialect.request(state, step, name);
    const isStream = step.isStream || step.client !== 'waits';
    const call: Call = {
      name,
      session: this.#session,
      parent: from.call,
      isFull: step.kept === 100,
      endsInToken: step.kept < 100 && !shown(from.answer).startsWith(shown(partOf(from.answer, step))),
      isChat: this.#path !== '',
      isStream,
      asksLogprobs: step.asksLogprobs,
      isRerendered: dialect.isRerendered(state, step),
      leavesAtFinish: step.client === 'leaves at the finish',
      text: '',
      got: 0,
      finish: '',
      ending: 'refused',
      sentAt: journal.now(),
      endedAt: Infinity,
      endedMs: Infinity,
    };
    journal.calls.set(name, call);
    const holdAt = this.#plan(name, step, ids);
    const wanted = holdAt === 0 ? '' : shown(ids.slice(0, holdAt)).replace(/\ufffd+$/, '');
    const parts: string[] = [];
    const onEvent = (data: string): Move => {
      parts.push(data);
      const got = dialect.read(parts, true);
      if (step.client === 'leaves' && holdAt > 0 && got.text.length >= wanted.length) return 'leave';
      if (got.finish === '' || data === '[DONE]') return 'go on';
      call.endedAt = Math.min(call.endedAt, journal.now());
      if (step.mishap === 'router dies after') void router.replace?.();
      if (step.client === 'leaves at the finish') return 'leave';
      return step.client === 'goes on at the finish' ? 'go on without waiting' : 'go on';
    };
    const headers: Record<string, string> = { 'x-request-id': name };
    if (this.#session !== '' && this.#path === '') headers['x-session-id'] = this.#session;
    this.#openGates();
    const reply = await post(agent, router.url + this.#path + path, { ...body, stream: isStream }, headers, onEvent);
    call.endedAt = Math.min(call.endedAt, journal.now());
    call.endedMs = performance.now();
    open.push(reply.over);
    await engines.settled();
    await router.settled?.();
    const end = this.#take(call, state, reply, ids);
    if (end === null) {
      this.#refusal = `${reply.status} ${reply.parts.join('\n')}`;
      // The router may have found out that an engine died, and not yet that another one took its place.
      await router.serves();
    }
    return end;
  }

  #take(call: Call, state: State, reply: Reply, ids: readonly number[]): End<State> | null {
    const dialect = this.#dialect;
    if (reply.status !== 200) {
      assert.ok(reply.status === 0 || reply.status >= 500, `${call.name}: ${reply.status} ${reply.parts.join('\n')}`);
      return null;
    }
    const isComplete = reply.isStream || reply.isWhole;
    const { text, finish } = isComplete ? dialect.read(reply.parts, reply.isStream) : { text: '', finish: '' };
    call.finish = finish;
    const isDone = reply.isStream && reply.parts.at(-1) === '[DONE]';
    if (!reply.isStream) call.ending = reply.isWhole ? 'whole' : 'broken';
    else if (isDone) call.ending = finish === '' ? 'broken' : 'whole';
    else call.ending = finish === '' ? (reply.isWhole ? 'broken' : 'left') : 'raced';
    call.got = finish === 'stop' || finish === 'length' ? ids.length : tokensOf(text, ids);
    if (call.got === 0) return null;
    const after = dialect.answered(state, text);
    call.text = dialect.keyOf(after);
    return { call, state: after, isStopped: finish === 'stop', answer: ids.slice(0, call.got) };
  }

  /** Tells engines what they do for a call. @returns with how many tokens it rests; 0: it does not */
  #plan(name: string, { client, mishap, at }: Step, ids: readonly number[]): number {
    const { engines, router } = this.#scene;
    const comesFirst = mishap !== 'none' && mishap !== 'router dies after';
    const canHappen = comesFirst && (mishap !== 'router dies' || router.replace !== undefined);
    const needsRest = (client === 'leaves' || canHappen) && ids.length > 1;
    const holdAt = needsRest ? Math.min(ids.length - 1, Math.max(1, Math.ceil((ids.length * at) / 100))) : 0;
    const isRaced = client === 'goes on at the finish' || client === 'leaves at the finish';
    const beforeEnd = async (): Promise<void> => {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#gates.push(resolve);
      await Promise.race([promise, delay(END_MS)]);
    };
    const goOn = (): void => engines.release(name);
    const onHeld = (): void => {
      if (client === 'leaves') return;
      // What is asked again goes through.
      engines.scripts.set(name, { ids });
      if (mishap === 'aborted') engines.abort(name);
      else if (mishap === 'engine dies') void engines.replaceServing(name);
      else if (mishap === 'updated') void engines.update().then(goOn);
      else if (mishap === 'router dies') void router.replace?.();
    };
    engines.scripts.set(name, { ids, ...(holdAt > 0 ? { holdAt, onHeld } : {}), ...(isRaced ? { beforeEnd } : {}) });
    return holdAt;
  }

  #openGates(): void {
    for (const open of this.#gates.splice(0)) open();
  }
}

/** The beginning of an answer that a step goes on from. */
export const partOf = (answer: readonly number[], { kept }: Step): readonly number[] =>
  answer.slice(0, Math.ceil((answer.length * kept) / 100));
