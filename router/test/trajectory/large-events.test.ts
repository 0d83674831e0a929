import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { STREAM_HEAD, answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const TEXT = 'One two three.';
const IDS = encode(TEXT);
/** More than a MB as JSON. */
const logprobs = Array.from({ length: 50_000 }, (_, i) => [-i / 8, i, '"index"']);

async function startScene(t: TestContext, answers: (target: string) => string) {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const engine = await startEngine(t, {
    onRequest: (asked) => void asked.whole.then(() => asked.connection.write(answers(asked.target))),
  });
  const plugin = ['radix-tree:{"verify":false}'];
  const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, plugin, pluginTimeoutMs: 60_000 });
  const generate = async (session: string): Promise<string> => {
    const body = JSON.stringify({ text: 'a', stream: true });
    const response = await fetch(`${router.url}/generate`, {
      method: 'POST',
      headers: { 'x-session-id': session },
      body,
    });
    return response.text();
  };
  const turnsOf = async (session: string, count: number) => {
    let page: { tokens: number[]; output_tokens: number }[] = [];
    await until('the turns are kept', async () => {
      ({ page } = (await (await fetch(`${router.url}/trajectories/${session}`)).json()) as { page: typeof page });
      return page.length === count;
    });
    return page;
  };
  return { generate, turnsOf };
}

const said = (from: number, to: number, more: object) =>
  JSON.stringify({
    text: TEXT,
    output_ids: IDS.slice(from, to),
    meta_info: {
      ...more,
      prompt_tokens: encode('a').length,
      completion_tokens: to,
      finish_reason: to === IDS.length ? { type: 'stop' } : null,
    },
    index: 0,
  });

for (const isCumulative of [true, false]) {
  test(`large events of a stream that is ${isCumulative ? '' : 'not '}cumulative pass as they are, and their tokens are kept`, async (t) => {
    const from = (i: number): number => (isCumulative ? 0 : i);
    const events = IDS.map((_, i) => `data: ${said(from(i), i + 1, { input_token_logprobs: logprobs })}\n\n`);
    const stream = `${STREAM_HEAD}${[...events, 'data: [DONE]\n\n'].map(chunk).join('')}0\r\n\r\n`;
    const { generate, turnsOf } = await startScene(t, () => stream);
    const got = await Promise.all(['a', 'b'].map((session) => generate(session)));
    for (const text of got) assert.ok(text === `${events.join('')}data: [DONE]\n\n`);
    for (const session of ['a', 'b']) {
      const [turn] = await turnsOf(session, 1);
      assert.deepEqual(turn!.tokens.slice(-IDS.length), IDS);
    }
  });
}

test('a large answer that is no stream is kept as well', async (t) => {
  const body = said(0, IDS.length, { input_token_logprobs: logprobs });
  const { generate, turnsOf } = await startScene(t, () => answer(200, body, ['content-type: application/json']));
  assert.ok((await generate('a')) === body);
  const [turn] = await turnsOf('a', 1);
  assert.deepEqual(turn!.tokens.slice(-IDS.length), IDS);
});
