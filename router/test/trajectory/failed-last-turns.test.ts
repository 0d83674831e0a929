import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { resetSocket } from '../harness/peer.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const DONE = 'data: [DONE]\n\n';

/** What SGLang says of one sampled token. */
const said = (finish: string | null) =>
  JSON.stringify({
    text: 'a',
    output_ids: [400],
    meta_info: { finish_reason: finish && { type: finish }, output_token_logprobs: [[-0.5, 400, null]] },
  });
const event = (finish: string | null): string => `data: ${said(finish)}\n\n`;

interface Way {
  readonly isEnd: boolean;
  /** Bytes of the stream, after which the client leaves. */
  readonly leavesAfter?: string;
  readonly respond: (asked: EngineRequest) => void;
}

function stream(asked: EngineRequest, ...events: readonly string[]): void {
  asked.beginStream();
  for (const text of events) asked.connection.write(`${text.length.toString(16)}\r\n${text}\r\n`);
}

function wholeStream(asked: EngineRequest, ...events: readonly string[]): void {
  stream(asked, ...events);
  asked.connection.write('0\r\n\r\n');
}

const WAYS: Readonly<Record<string, Way>> = {
  'an engine answers 500': { isEnd: false, respond: (asked) => asked.connection.write(answer(500, '{}')) },
  'an engine answers 400': { isEnd: false, respond: (asked) => asked.connection.write(answer(400, '{}')) },
  'a stream breaks off': {
    isEnd: false,
    respond: (asked) => {
      stream(asked, event(null));
      setImmediate(() => resetSocket(asked.connection.socket));
    },
  },
  'a stream ends with an error': {
    isEnd: false,
    respond: (asked) => wholeStream(asked, event(null), 'data: {"error":{"message":"out of memory"}}\n\n', DONE),
  },
  'the client leaves in the response': {
    isEnd: false,
    leavesAfter: 'output_ids',
    respond: (asked) => stream(asked, event(null)),
  },
  'the client leaves after the finish': {
    isEnd: true,
    leavesAfter: 'length',
    respond: (asked) => stream(asked, event('length')),
  },
  'a stream ends': { isEnd: true, respond: (asked) => wholeStream(asked, event('length'), DONE) },
  'a response comes': { isEnd: true, respond: (asked) => asked.answer(said('length')) },
};

/** Reads a response until the client leaves, or it ends. */
async function read(response: Response, leavesAfter: string | undefined): Promise<void> {
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body!) {
    text += decoder.decode(bytes, { stream: true });
    if (leavesAfter !== undefined && text.includes(leavesAfter)) return;
  }
}

for (const keeps of ['in memory', 'in a file'])
  test(`a session ends with its last turn, but not with one that failed; ${keeps}`, async (t) => {
    let respond: Way['respond'];
    const engine = await startEngine(t, { onRequest: (asked) => void asked.payload().then(() => respond(asked)) });
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const dataDir = keeps === 'in a file' ? { dataDir: temporaryFolder(t) } : {};
    const router = await startTestRouter(t, {
      workerUrls: [engine.url],
      tokenizerPath,
      plugin: ['radix-tree:{"verify":false}'],
      retryMaxRetries: 0,
      ...dataDir,
    });
    const ended = async (): Promise<string[]> => {
      const response = await fetch(`${router.url}/trajectories?finished=true`);
      const { trajectories } = (await response.json()) as { trajectories: { session: string }[] };
      return trajectories.map(({ session }) => session);
    };
    for (const [session, way] of Object.entries(WAYS)) {
      ({ respond } = way);
      const response = await fetch(`${router.url}/generate`, {
        method: 'POST',
        headers: { 'x-session-id': session, 'x-turnout-session-end': '1' },
        body: '{"input_ids":[257]}',
      });
      // One that breaks off rejects.
      await read(response, way.leavesAfter).catch(() => {});
    }
    await untilIdle(router);
    // Ends are stored in their order: this one is the last.
    await until('the last end is on record', async () => (await ended()).includes('a response comes'));
    const ends = Object.keys(WAYS).filter((session) => WAYS[session]!.isEnd);
    assert.deepEqual(await ended(), ends);
  });
