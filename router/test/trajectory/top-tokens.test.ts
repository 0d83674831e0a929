import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parquetReadObjects } from 'hyparquet';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { eventsOf, exportedLines, startChatScene } from '../harness/chat-scene.ts';

type Place = [logprob: number, id: number | null, text: string | null][] | null;

interface Line {
  readonly tokens: number[];
  readonly loss_mask: number[];
  readonly rollout_top_logprobs?: Place[];
}

const prompt = encode('<|im_start|>user\nWhat is of ten?<|im_end|>\n<|im_start|>assistant\n');
const messages = [{ role: 'user', content: 'What is of ten?' }];

/** What the places of an answer's tokens are, as its engine wrote them; `merge` puts the events of a stream together. */
interface Api {
  readonly kind: SimOptions['kind'];
  readonly path: string;
  readonly body: object;
  readonly read: (event: never) => Place[];
  /** Each event has all that came before. */
  readonly isCumulative?: true;
}

interface Completion {
  choices: { logprobs: { top_logprobs: Record<string, number>[] } }[];
}
interface Inference {
  choices: { logprobs: { content: { top_logprobs: { token_id: number; logprob: number }[] }[] } }[];
}
interface Chat {
  choices: { logprobs?: { content: { top_logprobs: { token: string; logprob: number }[] }[] } | null }[];
}

const apis: Record<string, Api> = {
  'SGLang /generate': {
    kind: 'sglang',
    path: '/generate',
    body: {
      input_ids: prompt,
      sampling_params: { max_new_tokens: 6 },
      return_logprob: true,
      top_logprobs_num: 3,
      return_text_in_logprobs: true,
    },
    read: ({ meta_info }: { meta_info: { output_top_logprobs: Place[] } }) => meta_info.output_top_logprobs,
    isCumulative: true,
  },
  'vLLM /v1/completions': {
    kind: 'vllm',
    path: '/v1/completions',
    body: { model: 'sim', prompt, max_tokens: 6, logprobs: 2, return_tokens_as_token_ids: true },
    read: ({ choices }: Completion) =>
      choices.flatMap(({ logprobs }) =>
        logprobs.top_logprobs.map((named) =>
          Object.entries(named).map(
            ([token, logprob]) => [logprob, Number(token.slice('token_id:'.length)), null] as const,
          ),
        ),
      ) as Place[],
  },
  'vLLM /inference/v1/generate': {
    kind: 'vllm',
    path: '/inference/v1/generate',
    body: { model: 'sim', token_ids: prompt, sampling_params: { max_tokens: 6, logprobs: 2 } },
    read: ({ choices }: Inference) =>
      choices.flatMap(({ logprobs }) =>
        logprobs.content.map(({ top_logprobs: top }) =>
          top.map(({ token_id: id, logprob }) => [logprob, id, null] as const),
        ),
      ) as Place[],
  },
  'vLLM /v1/chat/completions': {
    kind: 'vllm',
    path: '/v1/chat/completions',
    body: { model: 'sim', messages, max_tokens: 6, logprobs: true, top_logprobs: 2 },
    read: ({ choices }: Chat) =>
      choices.flatMap(({ logprobs }) =>
        (logprobs?.content ?? []).map(({ top_logprobs: top }) =>
          top.map(({ token, logprob }) => [logprob, null, token] as const),
        ),
      ) as Place[],
  },
};

for (const [name, { kind, path, body, read, isCumulative }] of Object.entries(apis)) {
  for (const stream of [false, true]) {
    test(`${name}, ${stream ? 'a stream' : 'a whole answer'}: the likeliest tokens are on record`, async (t) => {
      const plugin = ['radix-tree:{"completions":true}', 'chat-sessions'];
      const scene = await startChatScene(t, { kind, router: { plugin, captureChat: true } });
      const { status, text } = await scene.post(path, { ...body, stream }, { 'x-session-id': 's' });
      assert.equal(status, 200, text);
      const events = stream ? eventsOf(text) : [JSON.parse(text) as Record<string, unknown>];
      const told = (isCumulative === true ? events.slice(-1) : events).flatMap((event) => read(event as never));
      const { inputIds, outputIds } = scene.log[0]!;
      assert.equal(told.length, outputIds.length);
      const [line] = await exportedLines<Line>(scene);
      assert.deepEqual(line!.tokens, [...inputIds, ...outputIds]);
      const places = line!.rollout_top_logprobs!;
      assert.deepEqual(
        places.slice(0, inputIds.length),
        inputIds.map(() => null),
      );
      const kept = places.slice(inputIds.length);
      if (path !== '/v1/chat/completions') assert.deepEqual(kept, told);
      // Of two tokens with one text a completion, which vLLM is asked for, tells one.
      else for (const [i, place] of told.entries()) for (const each of place!) assert.ok(isIn(each, kept[i]!), `${i}`);
    });
  }
}

const isIn = ([logprob, , text]: readonly unknown[], place: NonNullable<Place>): boolean =>
  place.some((each) => each[0] === logprob && each[2] === text);

test('a trajectory of several turns has them where its tokens are, in every format; without them there is no such member', async (t) => {
  const scene = await startChatScene(t, { router: { plugin: ['radix-tree'] } });
  const ask = async (
    ids: number[],
    top: number,
  ): Promise<{ output_ids: number[]; meta_info: { output_top_logprobs?: Place[] } }> => {
    const body = {
      input_ids: ids,
      sampling_params: { max_new_tokens: 4 },
      return_logprob: true,
      top_logprobs_num: top,
    };
    const { text } = await scene.post('/generate', body, { 'x-session-id': 's' });
    return JSON.parse(text) as { output_ids: number[]; meta_info: { output_top_logprobs?: Place[] } };
  };
  const first = await ask(prompt, 2);
  const more = encode('<|im_start|>user\nMore?<|im_end|>\n<|im_start|>assistant\n');
  const second = await ask([...prompt, ...first.output_ids, ...more], 0);
  const nothing = (ids: readonly number[]): null[] => ids.map(() => null);
  const [line] = await exportedLines<Line>(scene);
  const expected = [
    ...nothing(prompt),
    ...first.meta_info.output_top_logprobs!,
    ...nothing(more),
    ...nothing(second.output_ids),
  ];
  assert.deepEqual(line!.rollout_top_logprobs, expected);
  const parquet = await (await fetch(`${scene.router.url}/trajectories?format=parquet`)).arrayBuffer();
  const [row] = await parquetReadObjects({ file: parquet });
  assert.deepEqual(JSON.parse(row!['rollout_top_logprobs'] as string), expected);
  const tensors = await (await fetch(`${scene.router.url}/trajectories?format=safetensors`)).text();
  assert.ok(tensors.includes(`"rollout_top_logprobs":${JSON.stringify(expected)}`));
  const page = (await (await fetch(`${scene.router.url}/trajectories/s`)).json()) as { page: Line[] };
  assert.deepEqual(
    page.page.map(({ rollout_top_logprobs: top }) => top?.length),
    [prompt.length + first.output_ids.length, undefined],
  );
});
