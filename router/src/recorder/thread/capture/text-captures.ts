import { bufferOf } from '../../../kit/bytes.ts';
import { dialectOf, dialects } from '../../../engines/dialects/dialects.ts';
import { generate } from '../../../engines/dialects/generate.ts';
import { Unreadable } from '../../../generation/delta.ts';
import { type GivenRequest, readRequest } from '../../shared/read-request.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';
import { Captures, type EndedResponse, unanswered } from '../captures.ts';
import { knownSpans } from '../../../weights/known-versions.ts';
import { ChoiceEvents } from '../read/choice-events.ts';
import { readAnswer, readEndedSamples } from '../read/read-answer.ts';
import type { Sampled } from '../read/sampled.ts';
import { keptTensors } from '../read/tensors.ts';
import { release } from '../tree/tree-node.ts';
import type { KnownTokens, OpenPrompt } from './known-tokens.ts';
import type { ChatName } from '../../shared/turn.ts';
import type { ExpertsFiles } from './experts-files.ts';
import { type OpenText, type TextRequest, continuesRunning } from './open-text.ts';

const QUOTE = 0x22;

/** Requests of `radix-tree`: their tokens are in the trees of their models. */
export class TextCaptures extends Captures<OpenText> {
  readonly #tree: () => KnownTokens;
  readonly #keepsBodies: boolean;

  constructor(
    tree: () => KnownTokens,
    files: ExpertsFiles | null,
    keepsBodies: boolean,
    turnsLost: (names: readonly ChatName[]) => void,
  ) {
    super(files, true, turnsLost);
    this.#tree = tree;
    this.#keepsBodies = keepsBodies;
  }

  /**
   * Finds the tokens of a request, after the turns that have ended.
   * @returns null: they can't be known, or it is wrong, which the engine says
   */
  async begin(id: number, asked: TextRequest) {
    const request = readRequest(dialects[asked.dialect], bufferOf(asked.body));
    if (request === null) return null;
    const isEarly = await continuesRunning(this.open.values(), asked, request);
    await this.settled();
    const opened = await this.#opened(asked, request, isEarly);
    this.open.set(id, opened);
    return { request, prompts: opened.prompts };
  }

  protected override async openLate(body: Uint8Array, { facts }: EndedResponse): Promise<OpenText | null> {
    const { tenant, session, model } = facts;
    const request = readRequest(dialectOf(facts.path) ?? generate, bufferOf(body));
    const asked = { tenant, session, model, body };
    return request === null ? null : this.#opened(asked, request, false);
  }

  protected override place(
    { isStream, isLast, answer, facts, expertsKey }: EndedResponse,
    known: OpenText,
    bytes: Buffer,
  ): void {
    const { prompts, samples, tenant, models, before, recorded } = known;
    const wanted = prompts.length * samples;
    const { first } = known;
    // Its turn was made of a part of the stream, before the ends of the other samples.
    if (isLast && first !== null && first.answer!.length < bytes.length) this.#tree().complete(first, bytes);
    // All of its turns are recorded, and the rest has no data of them.
    const isOver = isLast && before.length > 0 && !answer.some((piece) => piece.includes(QUOTE));
    if ((isOver && recorded.size === wanted) || (!isLast && known.isReadAtEnd)) return;
    const answers = this.#read(known, isStream, isLast, bytes);
    for (const sampled of answers) {
      if (recorded.has(sampled.index) || (!isLast && sampled.finishReason === null)) continue;
      const at = Math.floor(sampled.index / samples);
      const prompt = prompts[at];
      if (prompt === undefined) throw new Unreadable(`a sample with the number ${sampled.index}`);
      if (sampled.promptTokens !== null && sampled.promptTokens !== prompt.tokens) {
        throw new Unreadable(`the engine read ${sampled.promptTokens} tokens where there are ${prompt.tokens}`);
      }
      const tensors = keptTensors(this.files, expertsKey, sampled, prompt.tokens + sampled.ids.length);
      recorded.add(sampled.index);
      // The first of several samples has them for all.
      const isFirst = sampled.index === 0 && known.request !== null;
      const versioned = { ...sampled, known: knownSpans(sampled, isStream, bytes, facts.asked.changes) };
      // A stream without a finish reason was truncated, or its client disconnected.
      const finishReason = sampled.finishReason ?? (isStream ? 'abort' : null);
      const own = { ...facts, tenant, model: models[at]! };
      const bodies = { request: isFirst ? known.request : null, answer: isFirst ? bytes : null };
      const turn = this.#tree().record(prompt, { ...versioned, finishReason }, own, { ...tensors, ...bodies });
      if (isFirst && !isLast) known.first = turn;
    }
    // A truncated stream may lack some.
    if (!isStream && answers.length < wanted)
      throw new Unreadable(`${answers.length} answers where ${wanted} were asked for`);
  }

  /** The samples of a response, or of a part of it. */
  #read(known: OpenText, isStream: boolean, isLast: boolean, bytes: Buffer): readonly Sampled[] {
    const { dialect, recorded, events } = known;
    if (isLast) return readAnswer(dialect, isStream, bytes);
    try {
      return dialect.name === 'generate'
        ? readAnswer(dialect, isStream, bytes)
        : readEndedSamples(
            dialect,
            events.ended(bytes, (index) => recorded.has(index)),
          );
    } catch (error) {
      known.isReadAtEnd = true;
      throw error;
    }
  }

  protected override close({ prompts }: OpenText): void {
    for (const { end } of prompts) release(end);
  }

  async #opened(
    { tenant, session, model, body }: Omit<TextRequest, 'dialect'>,
    request: GivenRequest,
    isEarly: boolean,
  ): Promise<OpenText> {
    const { samples, isStream, addSpecial } = request;
    const models = request.models.map((own) => own || model);
    const prompts: OpenPrompt[] = [];
    try {
      for (const [i, prompt] of request.prompts.entries()) {
        const asked = { tenant, session, addSpecial, isEarly };
        prompts.push(await this.#tree().open(tenantKey(tenant, models[i]!), prompt, asked));
      }
    } catch (error) {
      for (const { end } of prompts) release(end);
      throw error;
    }
    const kept = this.#keepsBodies ? body : null;
    const { dialect } = request.asked;
    const facts = { dialect, models, tenant, session, isStream, samples, prompts, request: kept };
    const answer = { events: new ChoiceEvents(), isReadAtEnd: false, recorded: new Set<number>(), first: null };
    return { ...facts, ...answer, ...unanswered() };
  }
}
