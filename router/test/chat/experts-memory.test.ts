import assert from 'node:assert/strict';
import { createHash, randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { needsProc, residentBytes, startRouterProcess } from '../chaos/router-process.ts';
import { type EngineConnection, startEngine } from '../harness/engine.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { often } from '../harness/often.ts';

const MB = 1_048_576;
const EXPERTS_BYTES = 60 * MB;
const IDS = [300, 301, endOfTurn];
const HEAD = '"id":"x","created":1,"model":"m"';

type Parts = readonly (string | Buffer)[];

/** An answer with experts in it, and what of it a client gets that asked for them. */
interface Answer {
  readonly contentType: string;
  readonly engine: (base64: Buffer) => Parts;
  readonly client: (base64: Buffer) => Parts;
}

const JSON_TYPE = 'application/json';
const STREAM_TYPE = 'text/event-stream';
const CHOICE = `"choices":[{"index":0,"message":{"role":"assistant","content":"b"},"logprobs":null,"finish_reason":"stop"`;
const DELTA = `"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":"stop"}]`;
const OUTPUT = `,"output_ids":[[${IDS.join(',')}]]`;

const answers: Record<string, Answer> = {
  'SGLang, whole': {
    contentType: JSON_TYPE,
    engine: (base64) => [`{${HEAD},${CHOICE}}],"sglext":{"routed_experts":"`, base64, `"${OUTPUT}}}`],
    client: (base64) => [`{${HEAD},${CHOICE}}],"sglext":{"routed_experts":"`, base64, `"}}`],
  },
  'SGLang, stream': {
    contentType: STREAM_TYPE,
    engine: (base64) => [
      `data: {${HEAD},${DELTA}}\n\ndata: {${HEAD},"choices":[],"sglext":{"routed_experts":"`,
      base64,
      `"${OUTPUT}}}\n\ndata: [DONE]\n\n`,
    ],
    client: (base64) => [
      `data: {${HEAD},${DELTA}}\n\ndata: {${HEAD},"choices":[],"sglext":{"routed_experts":"`,
      base64,
      `"}}\n\ndata: [DONE]\n\n`,
    ],
  },
  'vLLM, whole': {
    contentType: JSON_TYPE,
    engine: (base64) => [`{${HEAD},${CHOICE},"token_ids":[${IDS.join()}],"routed_experts":"`, base64, '"}]}'],
    client: (base64) => [`{${HEAD},${CHOICE},"token_ids":null,"routed_experts":"`, base64, '"}]}'],
  },
  'vLLM, stream': {
    contentType: STREAM_TYPE,
    engine: (base64) => [
      `data: {${HEAD},${DELTA.slice(0, -2)},"token_ids":[${IDS.join()}],"routed_experts":"`,
      base64,
      `"}]}\n\ndata: [DONE]\n\n`,
    ],
    client: (base64) => [
      `data: {${HEAD},${DELTA.slice(0, -2)},"token_ids":null,"routed_experts":"`,
      base64,
      `"}]}\n\ndata: [DONE]\n\n`,
    ],
  },
};

async function writeAll({ socket }: EngineConnection, parts: Parts): Promise<void> {
  for (const part of parts) {
    for (let at = 0; at < part.length && socket.writable; at += MB) {
      const bytes = typeof part === 'string' ? part.slice(at, at + MB) : part.subarray(at, at + MB);
      if (!socket.write(bytes)) await once(socket, 'drain').catch(() => {});
    }
  }
}

function digestOf(parts: Parts): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}

/** A router process with chat sessions that has passed small answers on, before an engine that answers with the next of these parts. */
async function scene(t: TestContext, { contentType, engine: partsOf, client }: Answer) {
  const engine = await startEngine(t);
  let parts: Parts = [];
  engine.onRequest = ({ whole, connection }) =>
    void whole.then(() => {
      const length = parts.reduce((sum, part) => sum + part.length, 0);
      return writeAll(connection, [
        `HTTP/1.1 200 OK\r\ncontent-type: ${contentType}\r\ncontent-length: ${length}\r\n\r\n`,
        ...parts,
      ]);
    });
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startRouterProcess(
    t,
    [engine.url],
    [
      '--plugin',
      'chat-sessions:{"engine":"sglang","verify":false}',
      '--tokenizer-path',
      tokenizerPath,
      '--data-dir',
      temporaryFolder(t),
    ],
  );
  const ask = async (): Promise<string> => {
    const begun = (await (await fetch(`${router.url}/sessions`, { method: 'POST' })).json()) as { session_id: string };
    const response = await fetch(`${router.url}/sessions/${begun.session_id}/v1/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({
        messages: [{ role: 'user', content: 'a' }],
        return_routed_experts: true,
        stream: contentType === STREAM_TYPE,
      }),
    });
    const hash = createHash('sha256');
    for await (const part of response.body!) hash.update(part as Uint8Array);
    return hash.digest('hex');
  };
  const answerWith = (bytes: number): string => {
    const base64 = Buffer.from(randomFillSync(Buffer.allocUnsafe(bytes)).toString('base64'));
    parts = partsOf(base64);
    return digestOf(client(base64));
  };
  // What a first answer costs is paid: code, buffers, the store.
  for (let i = 0; i < 8; i++) {
    const expected = answerWith(4 * MB);
    assert.equal(await ask(), expected);
  }
  return { router, ask, answerWith };
}

for (const [name, answer] of Object.entries(answers)) {
  test(
    `${name}: 60 MB of experts add at most 60 MB to the router, several times as much at once 100 MB`,
    { skip: needsProc },
    async (t) => {
      const { router, ask, answerWith } = await scene(t, answer);
      const expected = answerWith(EXPERTS_BYTES);
      const atRest = residentBytes(router);
      let most = 0;
      const watch = setInterval(() => (most = Math.max(most, residentBytes(router) - atRest)), 5);
      t.after(() => clearInterval(watch));
      for (const [count, limit] of [
        [1, 60],
        [often(3, 8), 100],
      ] as const) {
        const got = await Promise.all(Array.from({ length: count }, ask));
        t.diagnostic(`${count}: the router grew by ${(most / MB).toFixed(1)} MB`);
        assert.deepEqual(new Set(got), new Set([expected]));
        assert.ok(most < limit * MB, `the router grew by ${most / MB} MB`);
      }
    },
  );
}
