import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { MemberSearch } from '../../src/kit/member-search.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { ChunkedReader } from '../../src/wire/chunked.ts';
import { request } from '../harness/client.ts';
import { startScene, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const MAX_HOPS = 6;
const IDS = encode('One two three.');
const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';

/** An event of SGLang's `/generate`, incremental. */
const event = (n: number): string => {
  const finish_reason = n === IDS.length ? { type: 'stop' } : null;
  const output_token_logprobs = [[-0.5, IDS[n - 1], null]];
  const meta_info = { id: 'a', finish_reason, completion_tokens: n, weight_version: '3', output_token_logprobs };
  return `data: ${JSON.stringify({ text: 'x', output_ids: [IDS[n - 1]], meta_info, index: 0 })}\n\n`;
};
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

interface Call {
  readonly bytes: number;
  /** The files from the read of the engine's bytes to this call, one after the other. */
  readonly files: readonly string[];
}

/** Notes the calls of a method while bytes of an engine are read. */
function callsOf<Name extends string>(
  t: TestContext,
  prototype: Record<Name, (bytes: Buffer, start: number, end: number) => unknown>,
  name: Name,
): Call[] {
  const calls: Call[] = [];
  const own = prototype[name];
  const methods = prototype as Record<string, typeof own>;
  t.mock.method(methods, name, function (this: typeof prototype, bytes: Buffer, start: number, end: number) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 100;
    const frames = new Error('here').stack!.split('\n').slice(1);
    Error.stackTraceLimit = stackTraceLimit;
    const files = frames.flatMap((frame) => /src\/([\w/-]+\.ts)/.exec(frame)?.[1] ?? []);
    const read = files.indexOf('forward/attempt.ts');
    if (read >= 0) {
      const passed = files.slice(0, files.lastIndexOf('forward/attempt.ts') + 1).toReversed();
      calls.push({ bytes: end - start, files: passed.filter((file, i) => file !== passed[i - 1]) });
    }
    return own.call(this, bytes, start, end);
  });
  return calls;
}

test('bytes of a captured stream are parsed once, searched once, and pass few functions', async (t) => {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const { router, client, ask } = await startScene(t, { tokenizerPath, plugin: ['radix-tree:{"verify":false}'] });
  const body = JSON.stringify({ input_ids: IDS, stream: true, sampling_params: { max_new_tokens: 9 } });
  const asked = await ask(request('POST', '/generate', body, ['content-type: application/json', 'x-session-id: s1']));
  await asked.payload();
  const parsed = callsOf(t, ChunkedReader.prototype, 'read');
  const searched = callsOf(t, MemberSearch.prototype, 'push');
  const events = IDS.map((_, i) => event(i + 1));
  const end = 'data: [DONE]\n\n';
  const stream = events.map(chunk).join('') + chunk(end) + chunk('');
  asked.connection.write(HEAD + stream);
  const { payload } = await client.answer('POST');
  assert.equal(payload.toString(), events.join('') + end);
  await untilIdle(router);
  const bytesOf = (calls: readonly Call[]): number => calls.reduce((sum, { bytes }) => sum + bytes, 0);
  assert.equal(bytesOf(parsed), stream.length, 'chunk parsers, by bytes');
  assert.equal(bytesOf(searched), payload.length, 'key searches, by bytes');
  const files = searched[0]!.files.concat('recorder/shared/member-search.ts');
  t.diagnostic(files.join(' -> '));
  assert.ok(files.length - 1 <= MAX_HOPS, files.join(' -> '));
});
