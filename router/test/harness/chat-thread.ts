import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { recorderCalls } from '../../src/recorder/thread/recorder-calls.ts';
import type { RecorderOptions } from '../../src/recorder/tap/recorder-thread.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';
import { decode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { temporaryFolder } from './temporary-folder.ts';

export interface SentMessage {
  readonly role: string;
  readonly content: string;
}

interface RecordedTurn extends Pick<Turn, 'id' | 'parent' | 'drift'> {
  readonly loss_mask: readonly number[];
  readonly request: string;
}

const EMPTY = Buffer.from('{"page":[],"next":null}');

/** What an SGLang answers to a chat: tokens of which each has the same logprob. */
export function chatAnswer(ids: readonly number[]): Buffer {
  const content = decode([...ids], false);
  const info = {
    finish_reason: { type: 'stop' },
    completion_tokens: ids.length,
    output_token_logprobs: ids.map((id) => [-0.5, id, null]),
  };
  const choice = { index: 0, message: { role: 'assistant', content }, finish_reason: 'stop', meta_info: info };
  return Buffer.from(JSON.stringify({ object: 'chat.completion', choices: [choice] }));
}

/** The calls of the recorder thread, on the test's own thread, for chats before an SGLang. */
export async function startChatThread(t: TestContext, options: Partial<RecorderOptions> = {}) {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const calls = await recorderCalls({ tokenizerPath, dataDir: null, ...options });
  t.after(() => calls.close());
  await calls.loadTokenizer();
  calls.chatBegin({ equality: 'loose_tool_call', request: {}, samples: 'ends' });
  let id = 0;
  const startedMs: Record<number, number> = {};
  /** @returns the ids that the engine got */
  const open = async (session: string, messages: readonly SentMessage[], more: object = {}) => {
    const opened = await calls.chatOpen({
      id: ++id,
      session,
      tenant: '',
      body: Buffer.from(JSON.stringify({ messages, model: 'm', ...more })),
      engine: 'sglang',
      maxModelLen: 0,
      takesIds: true,
      key: '',
      isInPath: false,
    });
    assert.ok(opened.problem === null);
    const { input_ids: ids } = JSON.parse(Buffer.from(opened.body).toString()) as { input_ids: number[] };
    return { id, ids };
  };
  /** @param isLast false: more of the stream follows */
  const close = async (opened: number, answer: Buffer, isStream = false, isLast = true): Promise<void> => {
    const asked = { before: null, isProof: false, stale: null, ticket: null, changes: [] };
    const name = { session: '', tenant: '', group: '', worker: '', model: '', path: '/v1/chat/completions' };
    // All parts of a response have that of its request.
    const startedAtMs = (startedMs[opened] ??= Date.now());
    const facts = { ...name, startedAtMs, ttftMs: 1, generationMs: 1, asked };
    const part = { isStream, isLast, answer: [answer], expertsKey: null };
    const call = {
      kind: 'chat',
      id: opened,
      request: null,
      ...part,
      facts,
      isAwaited: false,
      sessionEnd: null,
    } as const;
    assert.equal((await calls.captureEnded(call)).problem, null);
  };
  return {
    calls,
    open,
    close,
    /** Asks, and answers with these tokens and a stop token. @returns the messages that its client knows then, and what it sent */
    async turn(session: string, messages: readonly SentMessage[], answer: readonly number[]) {
      const { id: opened, ids } = await open(session, messages);
      const sampled = [...answer, endOfTurn];
      await close(opened, chatAnswer(sampled));
      const content = decode([...sampled], false);
      return { ids, trajectory: [...ids, ...sampled], messages: [...messages, { role: 'assistant', content }] };
    },
    /** Turns on record. */
    async turns(session: string): Promise<readonly RecordedTurn[]> {
      const found: RecordedTurn[] = [];
      for (let after: string | null = ''; after !== null;) {
        const json = await calls.turnsJson({ session, after, limit: 1_000 });
        const page: { page: RecordedTurn[]; next: string | null } = JSON.parse(Buffer.from(json ?? EMPTY).toString());
        found.push(...page.page);
        after = page.next;
      }
      return found;
    },
  };
}
