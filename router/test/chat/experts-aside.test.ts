import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { metric } from '../admission/metric.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const IDS = [300, 301, endOfTurn];
const TOKENS = `"token_ids":[${IDS.join()}]`;
const LOGPROBS = '{"content":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}]}';
const COMPLETION = `"logprobs":{"tokens":["a","b","c"],"token_logprobs":[-1,-2,-3],"top_logprobs":null},"finish_reason":"stop",${TOKENS}`;

interface Case {
  readonly engine: 'sglang' | 'vllm';
  readonly isStream: boolean;
  /** Where each value of experts stands is an @. */
  readonly answer: readonly string[];
  readonly request?: object;
  readonly plugin?: object;
  readonly isHidden?: true;
}

const chat = (index: number): string =>
  `{"index":${index},"message":{"role":"assistant","content":"a \\"@ {["},"logprobs":${LOGPROBS},"finish_reason":"stop",${TOKENS},"routed_experts":@,"more":[{"x":1}]}`;
const delta = (index: number): string =>
  `{"index":${index},"delta":{"content":"a"},"logprobs":${LOGPROBS},"finish_reason":"stop",${TOKENS},"routed_experts":@}`;
const completion = (index: number): string =>
  `{"index":${index},"text":"a \\"b",${COMPLETION},"routed_experts":@,"stop_reason":null}`;
const events = (...datas: string[]): string[] => [...datas, '[DONE]'].map((data) => `data: ${data}\n\n`);

const cases: Record<string, Case> = {
  'SGLang, in an extension': {
    engine: 'sglang',
    isStream: false,
    answer: [
      `{"id":"x","choices":[${chat(0).replace('"routed_experts":@,', '')}],"usage":{},"sglext":{"routed_experts":@,"output_ids":[[${IDS.join()}]]}}`,
    ],
  },
  'SGLang, in an extension, ids first': {
    engine: 'sglang',
    isStream: false,
    answer: [
      `{"id":"x","sglext":{"output_ids":[[${IDS.join()}]],"routed_experts":@},"choices":[${chat(0).replace('"routed_experts":@,', '')}]}`,
    ],
  },
  'SGLang, hidden': {
    engine: 'sglang',
    isStream: false,
    answer: [
      `{"id":"x","choices":[${chat(0)},${chat(1)}],"usage":{},"sglext":{"routed_experts":@,"output_ids":[[${IDS.join()}]]}}`,
    ],
    request: { return_routed_experts: undefined },
    plugin: { request: { return_routed_experts: true } },
    isHidden: true,
  },
  'SGLang, stream': {
    engine: 'sglang',
    isStream: true,
    answer: events(
      `{"id":"x","choices":[${delta(0)}],"usage":{"completion_tokens":3}}`,
      `{"id":"x","choices":[],"sglext":{"routed_experts":@,"output_ids":[[${IDS.join()}]]}}`,
    ),
  },
  'SGLang, stream, hidden': {
    engine: 'sglang',
    isStream: true,
    answer: events(
      `{"id":"x","choices":[${delta(0)}],"usage":{"completion_tokens":3}}`,
      `{"id":"x","choices":[],"sglext":{"routed_experts":@,"output_ids":[[${IDS.join()}]]}}`,
    ),
    request: { return_routed_experts: undefined },
    plugin: { request: { return_routed_experts: true } },
    isHidden: true,
  },
  'vLLM, each of several choices': {
    engine: 'vllm',
    isStream: false,
    answer: [`{"id":"x","prompt_token_ids":[300],"choices":[${[0, 1, 2].map(chat).join()}],"usage":{}}`],
    request: { tools: [{}] },
  },
  'vLLM, events of a chat': {
    engine: 'vllm',
    isStream: true,
    answer: events(...[0, 1, 2].map((index) => `{"id":"x","prompt_token_ids":[300],"choices":[${delta(index)}]}`)),
    request: { tools: [{}] },
  },
  'vLLM, of a completion': {
    engine: 'vllm',
    isStream: false,
    answer: [
      `{"id":"cmpl-x","object":"text_completion","created":1,"model":"m","choices":[${[0, 1].map(completion).join()}]}`,
    ],
  },
  'vLLM, events of a completion': {
    engine: 'vllm',
    isStream: true,
    answer: events(
      ...[0, 1].map(
        (index) =>
          `{"id":"cmpl-x","object":"text_completion","created":1,"model":"m","choices":[${completion(index)}]}`,
      ),
    ),
  },
};

/** @returns what a client gets of an answer with these experts */
async function startPassing(
  t: TestContext,
  { engine: kind, isStream, answer, request = {}, plugin = {} }: Case,
): Promise<(experts: string) => Promise<string>> {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const engine = await startEngine(t);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    tokenizerPath,
    plugin: [`chat-sessions:${JSON.stringify({ engine: kind, verify: false, ...plugin })}`],
    pluginTimeoutMs: 60_000,
  });
  return async (experts) => {
    const { session_id: session } = (await (await fetch(`${router.url}/sessions`, { method: 'POST' })).json()) as {
      session_id: string;
    };
    const body = JSON.stringify({
      messages: [{ role: 'user', content: 'a' }],
      max_tokens: 9,
      logprobs: true,
      stream: isStream,
      return_routed_experts: true,
      ...request,
    });
    const response = fetch(`${router.url}/sessions/${session}/v1/chat/completions`, { method: 'POST', body });
    const asked = await engine.next();
    await asked.payload();
    const parts = answer.map((part) => part.replaceAll('"routed_experts":@', () => `"routed_experts":${experts}`));
    if (isStream) asked.connection.write(`${STREAM_HEAD}${parts.map(chunk).join('')}0\r\n\r\n`);
    else asked.answer(parts.join(''));
    const text = await (await response).text();
    await untilIdle(router);
    assert.equal(await metric(router, 'turnout_chat_uncaptured_total'), 0);
    return text;
  };
}

const SMALL = 9;
const LARGE = 900_000;
const forms: Record<string, (length: number) => string> = {
  base64: (length) => `"${'AbC/'.repeat(length / 3)}"`,
  'an object': (length) => `{"dtype": "int32", "data": "${'AbC/'.repeat(length / 3)}", "shape": [${length}]}`,
  lists: (length) => `[[${Array.from({ length: length / 3 }, (_, i) => i % 100).join()}], []]`,
};

for (const [name, given] of Object.entries(cases)) {
  test(`${name}: an answer with many experts is that with few, but for the experts`, async (t) => {
    const pass = await startPassing(t, given);
    for (const [form, experts] of Object.entries(forms)) {
      const few = await pass(experts(SMALL));
      const many = await pass(experts(LARGE));
      assert.equal(few.includes('routed_experts'), given.isHidden !== true, form);
      assert.ok(many === few.replaceAll(experts(SMALL), () => experts(LARGE)), `${form}: ${many.slice(0, 300)}`);
      assert.equal(many.length > LARGE / 2, given.isHidden !== true, form);
    }
  });
}
