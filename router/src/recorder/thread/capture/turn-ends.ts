import { bufferOf } from '../../../kit/bytes.ts';
import { release } from '../tree/tree-node.ts';
import type { Capture, OpenPrompt, TurnFacts } from './capture.ts';
import type { ExpertsFiles } from './experts-files.ts';
import { knownSpans } from '../read/known-versions.ts';
import { readAnswer } from '../read/read-answer.ts';
import { dialectOf } from '../../../engines/dialects/dialects.ts';
import { generate } from '../../../engines/dialects/generate.ts';
import { Unreadable } from '../../../generation/delta.ts';
import type { Dialect } from '../../../generation/dialect.ts';
import { readRequest } from '../../shared/read-request.ts';
import { keptTensors } from '../read/tensors.ts';
import { tenantKey } from '../../shared/tenant-key.ts';

/** A turn with its response, as the event loop passes it to the thread. Requests and responses have memory of their own. */
export interface EndedTurn {
  /** The number of its open capture; 0: there is none, and `request` has the body. */
  readonly id: number;
  readonly request: Uint8Array | null;
  readonly isStream: boolean;
  /** False: more of its answer follows, with the same number. Choices that have ended are turns now. */
  readonly isLast: boolean;
  /** In pieces. */
  readonly answer: readonly Uint8Array[];
  /** The key of its routed experts; null: it had none. */
  readonly expertsKey: number | null;
  /** `model`: as the router knows it; the model in the request takes precedence. */
  readonly facts: TurnFacts;
}

/** A request whose prompts are held in the tree until its response has come. */
export interface Open {
  readonly dialect: Dialect;
  /** One for each prompt. */
  readonly models: readonly string[];
  readonly tenant: string;
  readonly samples: number;
  readonly prompts: readonly OpenPrompt[];
  /** As the client sent it, if bodies are kept. */
  readonly request: Uint8Array | null;
  /** The earlier parts of its response, whose ended choices are turns already. */
  before: Buffer;
  readonly recorded: Set<number>;
  /** '' where the request names none. */
  readonly session: string;
  readonly isStream: boolean;
  /** Resolves when nothing more of its answer comes. */
  readonly over: PromiseWithResolvers<void>;
}

/** What `TurnEnds` works on. */
interface TurnEndsOptions {
  readonly capture: () => Capture;
  /** Open captures by their numbers. */
  readonly open: Map<number, Open>;
  readonly files: ExpertsFiles | null;
  readonly keepsBodies: boolean;
}

/** Makes turns of responses. */
export class TurnEnds {
  /** Responses that could not be read, or have other prompts than the request. */
  uncaptured = 0;
  /** Why the last of them could not be read; '': all could. */
  lastProblem = '';
  readonly #options: TurnEndsOptions;
  /** The last turn to end: later turns, and reads of them, wait for it. */
  #last: Promise<void> = Promise.resolve();

  constructor(options: TurnEndsOptions) {
    this.#options = options;
  }

  /** Resolves when all turns that have ended by now are in the tree. */
  settled(): Promise<void> {
    return this.#last;
  }

  /** @returns resolves when its samples are turns */
  end(turn: EndedTurn): Promise<void> {
    return this.#queue(() => this.#endNow(turn));
  }

  async #endNow(turn: EndedTurn): Promise<void> {
    const { open, files } = this.#options;
    let known: Open | undefined;
    try {
      known = turn.request === null ? open.get(turn.id) : await this.#open(turn.request, turn);
      if (known === undefined && turn.request === null)
        throw new Error('its request is not known: the recorder thread was started again meanwhile');
      if (known === undefined) return;
      if (!turn.isLast) open.set(turn.id, known);
      this.#record(turn, known);
    } catch (error) {
      // Otherwise its choices are recorded with the rest of the response.
      if (turn.isLast || known === undefined) throw error;
    } finally {
      if (turn.isLast) {
        open.delete(turn.id);
        if (turn.expertsKey !== null) files?.drop(turn.expertsKey);
        if (known !== undefined) close(known);
      }
    }
  }

  /** There is no response to record. */
  drop(id: number): void {
    const { open } = this.#options;
    void this.#queue(() => {
      const known = open.get(id);
      open.delete(id);
      if (known !== undefined) close(known);
    });
  }

  #queue(work: () => void | Promise<void>): Promise<void> {
    this.#last = this.#last.then(work).catch((error: unknown) => this.#failed(error));
    return this.#last;
  }

  /** A request that came with its answer: one prompt, as ids. undefined: its tokens are not known. */
  async #open(request: Uint8Array, { facts, isStream }: EndedTurn): Promise<Open | undefined> {
    const { capture, keepsBodies } = this.#options;
    const dialect = dialectOf(facts.path) ?? generate;
    const read = readRequest(dialect, bufferOf(request));
    const [prompt] = read?.prompts ?? [];
    if (read === null || prompt === undefined) return undefined;
    const { tenant, session } = facts;
    const { samples, addSpecial } = read;
    const model = read.models[0] || facts.model;
    const opened = await capture().open(tenantKey(tenant, model), prompt, { tenant, session, addSpecial });
    const kept = keepsBodies ? request : null;
    return openOf({ dialect, models: [model], tenant, session, isStream, samples, prompts: [opened], request: kept });
  }

  #record({ isStream, isLast, answer, facts, expertsKey }: EndedTurn, known: Open): void {
    const { dialect, prompts, samples, tenant, models, before, recorded } = known;
    const { capture, files } = this.#options;
    const bytes = joined([before, ...answer]);
    if (!isLast) known.before = bytes;
    const answers = readAnswer(dialect, isStream, bytes);
    for (const sampled of answers) {
      if (recorded.has(sampled.index) || (!isLast && sampled.finishReason === '')) continue;
      const at = Math.floor(sampled.index / samples);
      const prompt = prompts[at];
      if (prompt === undefined) throw new Unreadable(`a sample with the number ${sampled.index}`);
      if (sampled.promptTokens >= 0 && sampled.promptTokens !== prompt.tokens) {
        throw new Unreadable(`the engine read ${sampled.promptTokens} tokens where there are ${prompt.tokens}`);
      }
      const model = models[at]!;
      // Comparing is cheaper than copying.
      const isSame = facts.tenant === tenant && facts.model === model;
      const told = isSame ? facts : { ...facts, tenant, model };
      const tensors = keptTensors(files, expertsKey, sampled, prompt.tokens + sampled.ids.length);
      // The first of several samples has them for all.
      recorded.add(sampled.index);
      const isFirst = sampled.index === 0 && known.request !== null;
      const request = isFirst ? known.request : null;
      const versioned = { ...sampled, known: knownSpans(sampled, isStream, bytes, facts.asked.changes) };
      // A stream without a finish reason was truncated, or its client disconnected.
      const finishReason = sampled.finishReason || (isStream ? 'abort' : '');
      capture().record(prompt, { ...versioned, finishReason }, told, {
        ...tensors,
        request,
        answer: isFirst ? bytes : null,
      });
    }
    const wanted = prompts.length * samples;
    // A truncated stream may lack some.
    if (!isStream && answers.length < wanted)
      throw new Unreadable(`${answers.length} answers where ${wanted} were asked for`);
  }

  #failed(error: unknown): void {
    this.uncaptured++;
    this.lastProblem = (error as Error).message;
  }
}

/** An open capture without any part of its response. */
export const openOf = (facts: Omit<Open, 'before' | 'recorded' | 'over'>): Open => ({
  ...facts,
  before: Buffer.alloc(0),
  recorded: new Set(),
  over: Promise.withResolvers(),
});

/** No more of the response comes: releases its prompts. */
function close({ over, prompts }: Open): void {
  over.resolve();
  for (const { end } of prompts) release(end);
}

function joined(pieces: readonly Uint8Array[]): Buffer {
  const some = pieces.filter(({ length }) => length > 0);
  return some.length === 1 ? bufferOf(some[0]!) : Buffer.concat(some);
}
