import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { decode, encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { type ChatScene, eventsOf, exportedLines, startChatScene } from '../harness/chat-scene.ts';
import { untilIdle } from '../harness/router.ts';

interface Choice {
  readonly index: number;
  readonly token_ids: number[];
  readonly finish_reason: string | null;
  readonly logprobs: { readonly content: { readonly logprob: number }[] } | null;
}

interface Kept {
  readonly page: {
    readonly parent: string | null;
    readonly keeps: number;
    readonly path: string;
    readonly tokens: number[];
    readonly loss_mask: number[];
    readonly rollout_log_probs: (number | null)[];
    readonly finish_reason: string;
  }[];
}

interface Line {
  readonly tokens: number[];
  readonly loss_mask: number[];
  readonly rollout_log_probs: (number | null)[];
}

const PATH = '/inference/v1/generate';
const prompt = encode('<|im_start|>user\nWhat is of ten?<|im_end|>\n<|im_start|>assistant\n');

const start = (t: TestContext): Promise<ChatScene> =>
  startChatScene(t, { kind: 'vllm', router: { plugin: ['radix-tree'] } });

async function generate(scene: ChatScene, body: object, session = 's'): Promise<Choice[]> {
  const request = { model: 'sim', sampling_params: { max_tokens: 12, logprobs: 1 }, ...body };
  const { status, text } = await scene.post(PATH, request, { 'x-session-id': session });
  assert.equal(status, 200, text);
  await untilIdle(scene.router);
  const events = text.startsWith('data:') ? eventsOf(text) : [JSON.parse(text) as Record<string, unknown>];
  const choices = new Map<number, Choice>();
  for (const { choices: parts } of events) {
    for (const part of parts as readonly Choice[]) {
      const { index, token_ids: ids, logprobs, finish_reason } = part;
      const before = choices.get(index);
      const content = [...(before?.logprobs?.content ?? []), ...(logprobs?.content ?? [])];
      const token_ids = [...(before?.token_ids ?? []), ...ids];
      choices.set(index, { index, token_ids, finish_reason, logprobs: logprobs === null ? null : { content } });
    }
  }
  return [...choices.values()];
}

async function get<T>({ router }: ChatScene, path: string): Promise<T> {
  const answer = await fetch(router.url + path);
  assert.equal(answer.status, 200);
  return (await answer.json()) as T;
}

const logprobsOf = ({ logprobs }: Choice) => logprobs!.content.map(({ logprob }) => logprob);
const zeros = (count: number) => Array.from({ length: count }, () => 0);
const ones = (count: number) => Array.from({ length: count }, () => 1);

for (const stream of [false, true]) {
  test(`${PATH}: ${stream ? 'a stream' : 'a whole answer'} is on record as the engine did it, turn after turn`, async (t) => {
    const scene = await start(t);
    const [first] = await generate(scene, { token_ids: prompt, stream });
    const more = encode('<|im_start|>user\nAnd of two?<|im_end|>\n<|im_start|>assistant\n');
    const history = [...prompt, ...first!.token_ids, ...more];
    const [second] = await generate(scene, { token_ids: history, stream });
    assert.deepEqual(
      scene.log.map(({ inputIds, outputIds }) => [inputIds, outputIds]),
      [
        [prompt, first!.token_ids],
        [history, second!.token_ids],
      ],
      'ids reach the engine as they were sent',
    );
    const { page } = await get<Kept>(scene, '/trajectories/s');
    assert.deepEqual(
      page.map(({ path, keeps, finish_reason: reason }) => [path, keeps, reason]),
      [
        [PATH, 0, first!.finish_reason],
        [PATH, prompt.length + first!.token_ids.length, second!.finish_reason],
      ],
    );
    assert.deepEqual(await exportedLines<Line>(scene, 's').then((all) => all.map(({ tokens }) => tokens)), [
      [...history, ...second!.token_ids],
    ]);
    const [line] = await exportedLines<Line>(scene, 's');
    const given = zeros(prompt.length);
    const between = zeros(more.length);
    assert.deepEqual(line!.loss_mask, [
      ...given,
      ...ones(first!.token_ids.length),
      ...between,
      ...ones(second!.token_ids.length),
    ]);
    assert.deepEqual(line!.rollout_log_probs, [...given, ...logprobsOf(first!), ...between, ...logprobsOf(second!)]);
  });
}

test(`${PATH}: each of several samples is a trajectory, without logprobs where none were asked for`, async (t) => {
  const scene = await start(t);
  const choices = await generate(scene, { token_ids: prompt, sampling_params: { max_tokens: 5, n: 3 } });
  assert.equal(choices.length, 3);
  const all = await exportedLines<Line>(scene, 's');
  assert.deepEqual(
    all.map(({ tokens }) => tokens),
    choices.map(({ token_ids: ids }) => [...prompt, ...ids]),
  );
  for (const [i, { rollout_log_probs: logprobs }] of all.entries())
    assert.deepEqual(logprobs, [...zeros(prompt.length), ...choices[i]!.token_ids.map(() => null)]);
});

test(`${PATH}: the text of what was sampled gives the ids back`, async (t) => {
  const scene = await start(t);
  const text = '<|im_start|>user\nTell me.<|im_end|>\n<|im_start|>assistant\n';
  const [choice] = await generate(scene, { token_ids: encode(text), sampling_params: { max_tokens: 6 } });
  const visible = decode(choice!.token_ids, false);
  const answer = await scene.post('/retrieve_from_text', { text: text + visible, model: 'sim' });
  const { tokens } = JSON.parse(answer.text) as { tokens: number[] };
  assert.deepEqual(tokens, [...encode(text), ...choice!.token_ids]);
});

test(`${PATH}: a prompt with images is passed on and not recorded; an error is the engine's own`, async (t) => {
  const scene = await start(t);
  await generate(scene, { token_ids: prompt, features: { images: ['x'] } });
  const { status, text } = await scene.post(PATH, { token_ids: 'x' });
  assert.equal(status, 400, text);
  assert.deepEqual(await get(scene, '/trajectories'), { trajectories: [], next: null });
});
