import assert from 'node:assert/strict';
import { type Server, createServer } from 'node:http';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

/** What an engine's tokenizer makes of the texts that it is asked about. */
type Makes = 'same' | 'other' | 'nothing';

/** An engine of which only its tokenizer is wanted. */
class Tokens {
  makes: Makes;
  /** How often it was asked. */
  asked = 0;
  readonly #server: Server;

  constructor(t: TestContext, makes: Makes) {
    this.makes = makes;
    this.#server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        if (request.url === '/generate') {
          response.end('{"text":"a","output_ids":[5],"meta_info":{"completion_tokens":1,"input_token_logprobs":[]}}');
          return;
        }
        this.asked++;
        const { prompt } = JSON.parse(Buffer.concat(parts).toString()) as { prompt: string };
        const isOther = this.makes === 'other' && prompt.includes('3.14159');
        const tokens = this.makes === 'nothing' ? [] : isOther ? [1, 2] : encode(prompt);
        response.end(JSON.stringify({ tokens, count: tokens.length }));
      });
    });
    t.after(() => this.#server.close());
  }

  async listen(port = 0): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }
}

interface Described {
  readonly workers: readonly { readonly url: string; readonly tokenizer_mismatch?: string }[];
}

for (const plugin of ['radix-tree', 'chat-sessions']) {
  test(`${plugin}: tokenizers are compared when workers join, before any request`, async (t) => {
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const [same, other, late, joins] = (['same', 'other', 'other', 'other'] as const).map(
      (makes) => new Tokens(t, makes),
    );
    const lateUrl = await late!.listen();
    await late!.close();
    const urls = [await same!.listen(), await other!.listen(), lateUrl];
    const lines: string[] = [];
    const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
    const options = { workerUrls: urls, tokenizerPath, plugin: [plugin], pluginTimeoutMs: 60_000 };
    const router = await startTestRouter(t, options, { log });
    const mismatches = async (): Promise<string[]> => {
      const { workers } = (await (await fetch(`${router.url}/workers`)).json()) as Described;
      return workers.filter((worker) => worker.tokenizer_mismatch !== undefined).map(({ url }) => url);
    };
    const mismatch = (url: string): string | null => router.fleet.get(url)!.tokenizerMismatch;

    await until('the one that is there is known', () => mismatch(urls[1]!) !== null);
    assert.match(mismatch(urls[1]!)!, /12345 678 3\.14159.*differs from token 0/);
    assert.match(lines.join(''), /is not the tokenizer of .*12345 678 3\.14159/);
    await until('the others were asked', () => same!.asked === 12);
    assert.deepEqual(await mismatches(), [urls[1]]);

    await late!.listen(Number(new URL(lateUrl).port));
    await until('it came up', () => mismatch(lateUrl) !== null);
    const joined = await joins!.listen();
    assert.equal((await fetch(`${router.url}/add_worker?url=${joined}`, { method: 'POST' })).status, 200);
    await until('it joined', () => mismatch(joined) !== null);
    assert.deepEqual(await mismatches(), [urls[1], lateUrl, joined]);

    // Another engine comes up at its place.
    const worker = router.fleet.get(joined)!;
    joins!.makes = 'same';
    router.fleet.setReason(worker, 'unhealthy', true);
    router.fleet.setReason(worker, 'unhealthy', false);
    await until('it was asked again', () => mismatch(joined) === null);
    assert.equal(same!.asked, 12, 'nobody else was');
  });
}

test('with "verify": false no engine is asked', async (t) => {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const engine = new Tokens(t, 'other');
  const plugin = ['radix-tree:{"verify":false}', 'chat-sessions:{"verify":false}'];
  const router = await startTestRouter(t, { workerUrls: [await engine.listen()], tokenizerPath, plugin });
  // By then whoever was to be asked at the start has been.
  const watched = new Tokens(t, 'other');
  const options = { workerUrls: [await watched.listen()], tokenizerPath, plugin: ['radix-tree'] };
  const other = await startTestRouter(t, options);
  await until('another router has asked', () => other.fleet.workers[0]!.tokenizerMismatch !== null);
  assert.equal(engine.asked, 0);
  assert.equal(router.fleet.workers[0]!.tokenizerMismatch, null);
});

const questions = [
  ['a text', { text: 'Hello' }],
  ['ids', { input_ids: [1, 2] }],
  ['lists of ids', { input_ids: [[1, 2], [3]] }],
  ['ids, several samples', { input_ids: [1, 2], sampling_params: { n: 2 } }],
] as const;

for (const [makes, refused] of [
  ['nothing', []],
  ['other', ['a text']],
] as const) {
  test(`of an engine whose tokenizer makes ${makes} of a text ${refused.join() || 'nothing'} is refused`, async (t) => {
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const engine = new Tokens(t, makes);
    const lines: string[] = [];
    const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
    const options = { workerUrls: [await engine.listen()], tokenizerPath, plugin: ['radix-tree'] };
    const router = await startTestRouter(t, options, { log });
    const answers: [string, number][] = [];
    for (const [what, body] of questions) {
      const answer = await fetch(`${router.url}/generate`, { method: 'POST', body: JSON.stringify(body) });
      await answer.text();
      answers.push([what, answer.status]);
    }
    assert.deepEqual(
      answers.filter(([, status]) => status !== 200),
      refused.map((what) => [what, 500]),
    );
    const isUnknown = lines.join('').includes('the tokenizer of the engine could not be compared');
    assert.equal(isUnknown, makes === 'nothing');
  });
}
