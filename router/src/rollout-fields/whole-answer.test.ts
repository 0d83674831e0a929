import { deepEqual, throws } from 'node:assert/strict';
import { test } from 'node:test';
import { readFields } from './fields.ts';
import { StreamEvents } from './stream-events.ts';
import { wholeAnswer } from './whole-answer.ts';

function planFor(asked: object, isChat = true) {
  const fields = readFields(Buffer.from(JSON.stringify(asked)), isChat, true);
  if (fields === null || 'problem' in fields) throw new Error('these are its fields');
  return {
    fields,
    engine: 'vllm',
    layers: null,
    logprobs: 'raw',
    baseIdentity: 'base',
  } as const;
}

const entry = (token: string, logprob: number): object => ({ token, logprob, bytes: null, top_logprobs: [] });

test('of more logprobs than tokens in a whole response the last ones count', () => {
  const plan = planFor({ messages: [], logprobs: true });
  const logprobs = { content: [entry('p', -3), entry('a', -1), entry('b', -2)] };
  const choice = { index: 0, message: { content: 'ab' }, token_ids: [5, 6], prompt_token_ids: [4], logprobs };
  const made = JSON.parse(wholeAnswer(Buffer.from(JSON.stringify({ choices: [choice] })), plan, null).toString()) as {
    choices: { logprobs: { content: { token: string }[] } }[];
  };
  deepEqual(
    made.choices[0]!.logprobs.content.map(({ token }) => token),
    ['a', 'b'],
  );
});

test('lists of the sampled tokens alone are not taken for those of the prompt, however short it is', () => {
  for (const echo of [{ echo: true }, { echo_last: 1 }]) {
    const plan = planFor({ prompt: [4, 5], logprobs: true, ...echo }, false);
    const logprobs = { tokens: ['a', 'b', 'c'], token_logprobs: [-1, -2, -3], top_logprobs: [{}, {}, {}] };
    const choice = { index: 0, text: 'abc', token_ids: [6, 7, 8], prompt_token_ids: [4, 5], logprobs };
    const body = Buffer.from(JSON.stringify({ choices: [choice] }));
    throws(() => wholeAnswer(body, plan, null), /returned no logprobs of the prompt/);
  }
});

test('where vLLM has no logprob of a sampled token it is null; of the prompt it may have the lowest one', () => {
  const plan = planFor({ messages: [], logprobs: true, echo: true, temperature: 1, top_p: 1, top_k: 0 });
  const logprobs = { content: [entry('a', -1), entry('b', -9999)] };
  const choice = { index: 0, message: { content: 'ab' }, token_ids: [5, 6], logprobs };
  const rows = [null, { 4: { logprob: -9999, decoded_token: 'p' } }];
  const answer = { prompt_token_ids: [3, 4], prompt_logprobs: rows, choices: [choice] };
  const made = JSON.parse(wholeAnswer(Buffer.from(JSON.stringify(answer)), plan, null).toString()) as {
    choices: { logprobs: { content: { logprob: number; sampling_logprob: number }[] } }[];
  };
  deepEqual(
    made.choices[0]!.logprobs.content.map(({ logprob, sampling_logprob: sampling }) => [logprob, sampling]),
    [
      [0, null],
      [-9999, null],
      [-1, -1],
      [null, null],
    ],
  );
});

test('perf_metrics are the last member', () => {
  const plan = planFor({ messages: [], perf_metrics_in_response: true, return_token_ids: true, raw_output: true });
  const choice = { index: 0, message: { content: 'a' }, token_ids: [5], prompt_token_ids: [4] };
  const made = wholeAnswer(Buffer.from(JSON.stringify({ id: 'x', choices: [choice] })), plan, {}).toString();
  deepEqual(Object.keys(JSON.parse(made) as object), ['id', 'choices', 'prompt_token_ids', 'perf_metrics']);
});

const streamed = (plan: ReturnType<typeof planFor>, choice: object): unknown => {
  const event = { choices: [{ index: 0, delta: { content: 'ab' }, token_ids: [5, 6], ...choice }] };
  const first = { prompt_token_ids: [4], choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] };
  const stream = new StreamEvents(plan);
  const events = [JSON.stringify(first), JSON.stringify(event), '[DONE]'];
  const made = events.map((each) => stream.event(Buffer.from(`data: ${each}\n\n`), () => null).toString()).join('');
  const last = made.split('\n\n').at(-3)!;
  return (JSON.parse(last.slice('data: '.length)) as { choices: object[] }).choices[0];
};

test('a stream whose client asks for no logprobs may have any number of them', () => {
  const plan = planFor({ messages: [], raw_output: true });
  const logprobs = { content: [entry('a', -1)] };
  deepEqual(streamed(plan, { logprobs, finish_reason: 'stop' }), {
    index: 0,
    delta: { content: 'ab' },
    logprobs,
    finish_reason: 'stop',
    raw_output: {
      completion: 'ab',
      prompt_fragments: [4],
      prompt_token_ids: [4],
      completion_token_ids: [5, 6],
    },
  });
});

test('the raw output of a stream that asks for logprobs has them, if there are none too', () => {
  const plan = planFor({ messages: [], raw_output: true, logprobs: true });
  const { raw_output: raw } = streamed(plan, { finish_reason: 'stop' }) as { raw_output: object };
  deepEqual((raw as { completion_logprobs?: unknown }).completion_logprobs, { content: [] });
});

test('likely tokens of a stream get no ids from meta_info, which has those of all tokens so far', () => {
  const plan = planFor({ messages: [], logprobs: true, top_logprobs: 1 });
  const top = [{ token: 'a', logprob: -1, bytes: null }];
  const logprobs = { content: [entry('a', -1), entry('b', -2)].map((each) => ({ ...each, top_logprobs: top })) };
  const info = { output_top_logprobs: [[[-1, 4, 'x']], [[-1, 5, 'a']], [[-1, 6, 'a']]] };
  const made = streamed(plan, { logprobs, meta_info: info }) as { logprobs: { content: { top_logprobs: unknown }[] } };
  deepEqual(
    made.logprobs.content.map((each) => each.top_logprobs),
    [top, top],
  );
});

test('an empty finish reason ends a choice of a stream', () => {
  const plan = planFor({ messages: [], raw_output: true });
  const choice = streamed(plan, { finish_reason: '' }) as { raw_output?: { completion: string } };
  deepEqual(choice.raw_output?.completion, 'ab');
});

test('the index of a choice stays as the engine writes it', () => {
  const plan = planFor({ messages: [], raw_output: true });
  const choices = ['0', '1'].map((index) => ({
    index,
    message: { content: 'a' },
    token_ids: [5],
    prompt_token_ids: [],
  }));
  const made = JSON.parse(wholeAnswer(Buffer.from(JSON.stringify({ choices })), plan, null).toString()) as {
    choices: { index: unknown }[];
  };
  deepEqual(
    made.choices.map(({ index }) => index),
    ['0', '1'],
  );
});

test('a text "false" asks for nothing', () => {
  const asked = { messages: [], raw_output: true, return_meta_info: 'false', prompt_logprobs: null };
  deepEqual(planFor(asked).fields.asked, []);
  deepEqual(planFor({ ...asked, return_meta_info: true, prompt_logprobs: 0 }).fields.asked, [
    'return_meta_info',
    'prompt_logprobs',
  ]);
});

test('a stream is asked for with every truth value that engines take', () => {
  for (const [stream, isStream] of [
    [true, true],
    [1, true],
    ['true', true],
    ['false', false],
    [0, false],
    [null, false],
  ] as const) {
    const fields = readFields(Buffer.from(JSON.stringify({ messages: [], logprobs: true, stream })), true, true);
    deepEqual(fields !== null && !('problem' in fields) && fields.isStream, isStream, String(stream));
  }
});

test('a queue time that the engine says is the prefill queue duration', () => {
  const asked = { messages: [], logprobs: true, perf_metrics_in_response: true, raw_output: true };
  const fields = readFields(Buffer.from(JSON.stringify(asked)), true, true);
  if (fields === null || 'problem' in fields) throw new Error('these are its fields');
  const metricsOf = (info: object): unknown => {
    const choice = { index: 0, message: { content: 'a' }, token_ids: [5], prompt_token_ids: [4], meta_info: info };
    const logprobs = { content: [{ token: 'a', logprob: -1, bytes: [97], top_logprobs: [] }] };
    const body = Buffer.from(JSON.stringify({ choices: [{ ...choice, logprobs }] }));
    const plan = { fields, engine: 'sglang', layers: null, logprobs: 'raw', baseIdentity: 'base' } as const;
    const made = JSON.parse(wholeAnswer(body, plan, {}).toString()) as { perf_metrics: object; choices: object[] };
    deepEqual('meta_info' in made.choices[0]!, false);
    return made.perf_metrics;
  };
  deepEqual(metricsOf({ queue_time: 0.25 }), { 'prefill-queue-duration': 0.25 });
  deepEqual(metricsOf({ queue_time: null }), {});
  deepEqual(metricsOf({}), {});
});
