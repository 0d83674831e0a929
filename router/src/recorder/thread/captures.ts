import { bufferOf } from '../../kit/bytes.ts';
import { cameWithin } from '../../kit/came-within.ts';
import type { TurnFacts } from './capture/known-tokens.ts';
import type { ExpertsFiles } from './capture/experts-files.ts';
import type { ChatName } from '../shared/turn.ts';

/** A response, or a part of it, as the event loop passes it to the thread. Requests and responses have memory of their own. */
export interface EndedResponse {
  /** The number of its open capture; 0: there is none, and `request` has the body. */
  readonly id: number;
  readonly request: Uint8Array | null;
  readonly isStream: boolean;
  /** False: more of the response follows, with the same number. Choices that have ended are turns now. */
  readonly isLast: boolean;
  /** What came since the last time, in pieces: one of megabytes is joined here. */
  readonly answer: readonly Uint8Array[];
  /** The key of its routed experts; null: it had none. */
  readonly expertsKey: number | null;
  /** `model`: as the router knows it; the model in the request takes precedence. */
  readonly facts: TurnFacts;
  /** The caller waits until the turns are in the store. */
  readonly isAwaited: boolean;
}

/** A request whose response has not ended. */
export interface OpenCapture {
  /** The earlier parts of its response, whose ended choices are turns already. */
  before: Buffer;
  /** Resolves when nothing more of its response comes. */
  readonly over: PromiseWithResolvers<void>;
}

const NOTHING = Buffer.alloc(0);

/** An open capture without any part of its response. */
export const unanswered = (): OpenCapture => ({ before: NOTHING, over: Promise.withResolvers() });

const UNKNOWN = 'its request is not known: the recorder thread was started again meanwhile';

/** Requests in flight, and how turns are made of their responses. */
export abstract class Captures<Open extends OpenCapture> {
  /** Responses that could not be read, or have other prompts than the request. */
  uncaptured = 0;
  /** Why the last of them could not be read; null: all could. */
  lastProblem: string | null = null;
  /** Called for each response that makes no turn, though it has ended. */
  onUncaptured: (name: ChatName) => void = () => {};
  protected readonly open = new Map<number, Open>();
  protected readonly files: ExpertsFiles | null;
  readonly #isInOrder: boolean;
  readonly #turnsLost: (names: readonly ChatName[]) => void;
  #last: Promise<unknown> = Promise.resolve();

  /**
   * @param files null: routed experts are not kept
   * @param isInOrder responses become turns one after the other
   * @param turnsLost is called for responses whose requests a thread that has ended had opened
   */
  constructor(
    files: ExpertsFiles | null,
    isInOrder: boolean,
    turnsLost: (names: readonly ChatName[]) => void = () => {},
  ) {
    this.files = files;
    this.#isInOrder = isInOrder;
    this.#turnsLost = turnsLost;
  }

  /** Opens a request that came with its response. @returns null: its tokens are not known */
  protected openLate(_request: Uint8Array, _response: EndedResponse): Promise<Open | null> {
    return Promise.resolve(null);
  }

  /** Makes turns of a response, or of what came of it: choices that have ended. */
  protected abstract place(response: EndedResponse, known: Open, answer: Buffer): void | Promise<void>;

  /** No more of the response comes, and all turns of it were made. */
  protected close(_known: Open): void {}

  /** Resolves when all responses that have ended by now are turns. */
  settled(): Promise<unknown> {
    return this.#last;
  }

  /** @returns why its turns are not on record; null: they are */
  end(response: EndedResponse): Promise<string | null> {
    return this.#inOrder(() => this.#end(response));
  }

  /** There is no response to record. */
  drop(id: number): void {
    void this.#inOrder(async () => {
      const known = this.#take(id);
      if (known !== null) this.#close(known);
    }).catch(() => {});
  }

  async #end(response: EndedResponse): Promise<string | null> {
    const { id, request, isLast, answer, expertsKey } = response;
    let known = isLast ? this.#take(id) : (this.open.get(id) ?? null);
    try {
      if (known === null && request !== null) {
        known = await this.openLate(request, response);
        if (known === null) {
          this.onUncaptured(response.facts);
          return null;
        }
        if (!isLast) this.open.set(id, known);
      }
      if (known === null) {
        this.#turnsLost([response.facts]);
        throw new Error(UNKNOWN);
      }
      const all = joined([known.before, ...answer]);
      if (!isLast) known.before = all;
      await this.place(response, known, all);
      return null;
    } catch (error) {
      // The rest of the response may have what is missing here.
      if (!isLast && (known !== null || request === null)) return null;
      this.uncaptured++;
      this.lastProblem = (error as Error).message;
      this.onUncaptured(response.facts);
      return this.lastProblem;
    } finally {
      if (isLast && expertsKey !== null) this.files?.drop(expertsKey);
      if (isLast && known !== null) this.#close(known);
    }
  }

  #take(id: number): Open | null {
    const known = this.open.get(id) ?? null;
    this.open.delete(id);
    return known;
  }

  #close(known: Open): void {
    known.over.resolve();
    this.close(known);
  }

  #inOrder<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#isInOrder ? this.#last.then(work) : work();
    const ended = done.catch(() => {});
    // Without the results: those of each list would be in that of the next one, back to the first response.
    this.#last = this.#isInOrder ? ended : Promise.all([this.#last, ended]).then(() => {});
    return done;
  }
}

/** How long a request waits for a response that it continues: its client closed that stream, and the router has not read the close yet. */
export const CLOSE_WAIT_MS = 250;

/** Waits until responses are recorded. @returns whether one of them still is not */
export async function areLate(recorded: readonly Promise<void>[]): Promise<boolean> {
  return recorded.length > 0 && !(await cameWithin(CLOSE_WAIT_MS, Promise.all(recorded)));
}

function joined(pieces: readonly Uint8Array[]): Buffer {
  const some = pieces.filter(({ length }) => length > 0);
  return some.length === 1 ? bufferOf(some[0]!) : Buffer.concat(some);
}
