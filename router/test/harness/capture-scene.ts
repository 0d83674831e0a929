import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { type CaptureOptions, captureCalls } from '../../src/recorder/thread/capture/capture-calls.ts';
import type { ExpertsFiles } from '../../src/recorder/thread/capture/experts-files.ts';
import type { HeapLimits } from '../../src/recorder/thread/heap-limits.ts';
import { MemoryStore } from '../../src/recorder/thread/store/memory.ts';
import { TurnWriter } from '../../src/recorder/thread/store/writer.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';

/** The folder of the simulated engine's tokenizer, removed after the file's tests. */
export function tokenizerFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-capture-'));
  after(() => rmSync(folder, { recursive: true }));
  writeTokenizer(folder);
  return folder;
}

/** What an engine answers. */
export interface Said {
  readonly ids: readonly number[];
  /** Of the first token; each one after it is 0.01 less. */
  readonly logprob: number;
  readonly version?: string;
  /** Left out: what the ids read as, without what stopped them. */
  readonly text?: string | undefined;
  /** Left out: `stop` where the last id ends a turn, else `length`. */
  readonly finish?: 'stop' | 'length' | 'abort';
}

/** A request and its answer. */
export interface Asked {
  readonly session?: string;
  readonly prompt: string | readonly number[];
  readonly said: Said;
}

/** The text that the client of an answer gets. */
export const visible = ({ ids, finish, text }: Said): string =>
  text ?? decode(ids.at(-1) === endOfTurn && finish !== 'length' ? ids.slice(0, -1) : ids, false);

export const logprobsOf = ({ ids, logprob }: Said): number[] => ids.map((_, i) => logprob - i / 100);

/** What the recorder thread does with requests and answers, without the thread. */
export class CaptureScene {
  readonly store: MemoryStore;
  readonly captured: ReturnType<typeof captureCalls>;
  readonly turns: Turn[] = [];
  readonly #writer: TurnWriter;
  #id = 0;

  private constructor(options: CaptureOptions, store: MemoryStore, files: ExpertsFiles | null, heap?: HeapLimits) {
    this.store = store;
    const writer = new TurnWriter(store);
    this.#writer = writer;
    const write = writer.put.bind(writer);
    const put = (turn: Turn): void => {
      write(turn);
      this.turns.push({ ...turn, ids: turn.ids.slice(), logprobs: turn.logprobs.slice(), mask: turn.mask.slice() });
    };
    writer.put = put;
    this.captured = captureCalls(options, writer, files, heap);
  }

  /** @param store what it finds of before, and keeps turns in */
  static async start(
    options: CaptureOptions,
    store = new MemoryStore(1e9),
    files: ExpertsFiles | null = null,
    heap?: HeapLimits,
  ): Promise<CaptureScene> {
    const scene = new CaptureScene(options, store, files, heap);
    await scene.captured.calls.loadTokenizer();
    return scene;
  }

  /** @returns the ids that the engine gets, and the turn that was recorded */
  async ask({ session = '', prompt, said }: Asked): Promise<{ ids: readonly number[]; turn: Turn }> {
    const isText = typeof prompt === 'string';
    const request = Buffer.from(JSON.stringify(isText ? { text: prompt } : { input_ids: prompt }));
    let ids = isText ? [] : prompt;
    const id = isText ? ++this.#id : 0;
    if (isText) {
      const call = { id, dialect: 'generate', body: request, tenant: '', model: 'm', session, forward: 'ids' } as const;
      const opened = await this.captured.calls.openCapture(call);
      ids = (JSON.parse(Buffer.from(opened!.body!).toString()) as { input_ids: number[] }).input_ids;
    }
    this.#answer(session, id, isText ? null : request, ids.length, said);
    await this.captured.captures.settled();
    await this.#writer.flush();
    return { ids, turn: this.turns.at(-1)! };
  }

  async retrieve(text: string, session = '') {
    const found = await this.captured.calls.retrieveFromText({
      text,
      session,

      tenant: '',
      model: 'm',
      withLogprobs: true,
    });
    if ('code' in found) throw new Error(found.message);
    return JSON.parse(Buffer.from(found).toString()) as {
      tokens: number[];
      loss_mask: number[];
      rollout_logp: number[];
      ambiguous?: boolean;
      drift?: Turn['drift'];
    };
  }

  #answer(session: string, id: number, request: Buffer | null, promptTokens: number, said: Said): void {
    const logprobs = logprobsOf(said);
    const type = said.finish ?? (said.ids.at(-1) === endOfTurn ? 'stop' : 'length');
    const answer = {
      text: visible(said),
      output_ids: said.ids,
      meta_info: {
        finish_reason: { type },
        prompt_tokens: promptTokens,
        completion_tokens: said.ids.length,
        weight_version: said.version ?? '1',
        output_token_logprobs: said.ids.map((token, i) => [logprobs[i], token, null]),
      },
    };
    const facts = { session, group: '', tenant: '', worker: 'w', model: 'm', path: '/generate' };
    // The engine was asked before the request, too: a name at the end of an answer alone proves nothing.
    const asked = { before: said.version ?? '1', isProof: true, stale: null, ticket: null, changes: [] };
    const times = { startedAtMs: Date.now(), ttftMs: 1, generationMs: 1, asked };
    void this.captured.captures.end({
      id,
      request,
      isStream: false,
      isLast: true,
      isAwaited: false,
      answer: [Buffer.from(JSON.stringify(answer))],
      expertsKey: null,
      facts: { ...facts, ...times },
    });
  }
}
