import { bufferOf } from '../../../kit/bytes.ts';
import { release } from '../tree/tree-node.ts';
import type { Capture, OpenPrompt, TurnFacts } from './capture.ts';
import type { ExpertsFiles } from './experts-files.ts';
import { knownSpans } from '../read/known-versions.ts';
import { readAnswer } from '../read/read-answer.ts';
import { type CaptureDialect, dialectOf, readRequest } from '../../shared/read-request.ts';
import { treeName } from './restore.ts';
import { Unreadable } from '../read/sampled.ts';
import { keptTensors } from '../read/tensors.ts';

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
  readonly dialect: CaptureDialect;
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

const NOTHING = Buffer.alloc(0);

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
  /** Why the last one could not; ''. */
  lastProblem = '';
  readonly #options: TurnEndsOptions;
  /** Set while the tokens of a turn are decoded: later turns, and reads of them, wait. */
  #behind: Promise<void> | null = null;

  constructor(options: TurnEndsOptions) {
    this.#options = options;
  }

  /** Ended turns are not in the tree yet. */
  get isBehind(): boolean {
    return this.#behind !== null;
  }

  /** Resolves when all ended turns are in the tree. */
  async settled(): Promise<void> {
    while (this.#behind !== null) await this.#behind;
  }

  /** @returns resolves when its samples are turns; null: they are */
  end(turn: EndedTurn): Promise<void> | null {
    const rest = this.#behind === null ? this.#endNow(turn) : this.#behind.then(() => this.#endNow(turn) ?? undefined);
    this.#behind = rest;
    void rest?.then(() => {
      if (this.#behind === rest) this.#behind = null;
    });
    return rest;
  }

  /** Synchronous unless tokens must be decoded, because the next call may be about this turn. */
  #endNow(turn: EndedTurn): Promise<void> | null {
    const opened = this.#openOf(turn);
    if (opened instanceof Promise) return opened.then((known) => this.#end(turn, known));
    this.#end(turn, opened);
    return null;
  }

  #openOf(turn: EndedTurn): Open | null | Promise<Open | null> {
    const { open } = this.#options;
    if (turn.request === null) {
      const known = open.get(turn.id) ?? null;
      if (turn.isLast) open.delete(turn.id);
      return known;
    }
    try {
      const opened = this.#openNow(turn.request, turn);
      return opened instanceof Promise ? opened.catch((error: unknown) => this.#failed(error)) : opened;
    } catch (error) {
      return this.#failed(error);
    }
  }

  /** A request that came with its answer: one prompt, as ids. null: its tokens are not known. */
  #openNow(request: Uint8Array, { facts, isStream }: EndedTurn): Open | null | Promise<Open> {
    const { capture, keepsBodies } = this.#options;
    const dialect = dialectOf(facts.path) ?? 'generate';
    const read = readRequest(dialect, bufferOf(request));
    const [prompt] = read?.prompts ?? [];
    if (read === null || prompt === undefined) return null;
    const { tenant, session } = facts;
    const { samples, addSpecial } = read;
    const model = read.models[0] || facts.model;
    const kept = keepsBodies ? request : null;
    const made = (open: OpenPrompt): Open => {
      const over = Promise.withResolvers<void>();
      const rest = { request: kept, before: NOTHING, recorded: new Set<number>(), over };
      return { dialect, models: [model], tenant, session, isStream, samples, prompts: [open], ...rest };
    };
    const opened = capture().open(treeName(tenant, model), prompt, { tenant, session, addSpecial });
    return opened instanceof Promise ? opened.then(made) : made(opened);
  }

  #end(turn: EndedTurn, known: Open | null): void {
    if (known !== null && !turn.isLast) this.#options.open.set(turn.id, known);
    try {
      if (known !== null) this.#record(turn, known);
    } catch (error) {
      // Otherwise the rest of the answer has them.
      if (turn.isLast) this.#failed(error);
    } finally {
      if (turn.isLast) {
        if (turn.expertsKey !== null) this.#options.files?.drop(turn.expertsKey);
        known?.over.resolve();
        for (const { end } of known?.prompts ?? []) release(end);
      }
    }
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
      capture().record(prompt, versioned, told, {
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

  #failed(error: unknown): null {
    this.uncaptured++;
    this.lastProblem = (error as Error).message;
    return null;
  }
}

function joined(pieces: readonly Uint8Array[]): Buffer {
  const some = pieces.filter(({ length }) => length > 0);
  return some.length === 1 ? bufferOf(some[0]!) : Buffer.concat(some);
}
