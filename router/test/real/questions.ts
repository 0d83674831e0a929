import type { EngineKind } from './installed.ts';

export interface Question {
  /** What is asked, in words. */
  name: string;
  of: readonly EngineKind[];
  method?: string;
  path: string;
  headers?: Record<string, string>;
  /** Sent as JSON; a string is sent as it is. */
  body?: object | string;
}

const both = ['vllm', 'sglang'] as const;
const prompt = Array.from({ length: 48 }, (_, i) => 20 + ((i * 53) % 400)); // longer than any cache block in use
const messages = [
  { role: 'system', content: 'One two three four five.' },
  { role: 'user', content: 'Which way? 🚂 "straight" on' },
];
const greedy = { temperature: 0, ignore_eos: true };
const openai = { model: 'tiny', max_tokens: 24, ...greedy };
const native = { max_new_tokens: 24, ...greedy };
const tokens = { max_tokens: 24, ...greedy, logprobs: 1 };
const usage = { stream_options: { include_usage: true } };

const completions = '/v1/completions';
const chat = '/v1/chat/completions';
const generate = '/generate';
const tokensInTokensOut = '/inference/v1/generate';

/** What RL code asks engines for: every generation endpoint, streamed and not, with the fields that training needs. */
export const generation: Question[] = [
  {
    name: 'completions',
    of: both,
    path: completions,
    body: { ...openai, prompt, logprobs: 2, return_token_ids: true },
  },
  {
    name: 'completions of a text',
    of: both,
    path: completions,
    body: { ...openai, prompt: 'What is seven times six?', return_token_ids: true },
  },
  {
    name: 'completions of two prompts',
    of: both,
    path: completions,
    body: { ...openai, prompt: [prompt, prompt.toReversed()], return_token_ids: true },
  },
  {
    name: 'completions, two samples',
    of: ['vllm'], // SGLang takes no seed here
    path: completions,
    body: { ...openai, prompt, n: 2, temperature: 1, seed: 7, return_token_ids: true },
  },
  {
    name: 'completions with the logprobs of the prompt',
    of: ['vllm'],
    path: completions,
    body: { ...openai, prompt, prompt_logprobs: 1, return_token_ids: true },
  },
  {
    name: 'completions streamed',
    of: both,
    path: completions,
    body: { ...openai, prompt, logprobs: 2, return_token_ids: true, stream: true, ...usage },
  },
  {
    name: 'chat',
    of: both,
    path: chat,
    body: { ...openai, messages, logprobs: true, top_logprobs: 2, return_token_ids: true },
  },
  {
    name: 'chat streamed',
    of: both,
    path: chat,
    body: { ...openai, messages, logprobs: true, top_logprobs: 2, stream: true, ...usage },
  },
  {
    name: 'chat streamed with token ids',
    of: ['vllm'], // SGLang refuses the two together
    path: chat,
    body: { ...openai, messages, return_token_ids: true, stream: true },
  },
  {
    name: 'generate',
    of: ['sglang'],
    path: generate,
    body: { input_ids: prompt, sampling_params: native },
  },
  {
    name: 'generate of a text',
    of: ['sglang'],
    path: generate,
    body: {
      text: 'What is seven times six?',
      sampling_params: native,
      return_text_in_logprobs: true,
    },
  },
  {
    name: 'generate with the logprobs of prompt and output',
    of: ['sglang'],
    path: generate,
    body: {
      input_ids: prompt,
      sampling_params: native,
      return_logprob: true,
      top_logprobs_num: 2,
      logprob_start_len: 0,
    },
  },
  {
    name: 'generate, two samples',
    of: ['sglang'],
    path: generate,
    body: { input_ids: prompt, sampling_params: { ...native, n: 2 }, return_logprob: true },
  },
  {
    name: 'generate, two prompts',
    of: ['sglang'],
    path: generate,
    body: { input_ids: [prompt, prompt.toReversed()], sampling_params: native, return_logprob: true },
  },
  {
    name: 'generate streamed',
    of: ['sglang'],
    path: generate,
    body: { input_ids: prompt, sampling_params: native, return_logprob: true, stream: true },
  },
  {
    name: 'tokens in, tokens out',
    of: ['vllm'],
    path: tokensInTokensOut,
    body: {
      request_id: 'told-by-the-client',
      token_ids: prompt,
      sampling_params: tokens,
      return_token_ids: true,
    },
  },
  {
    name: 'tokens in, tokens out, streamed',
    of: ['vllm'],
    path: tokensInTokensOut,
    body: { token_ids: prompt, sampling_params: tokens, return_token_ids: true, stream: true },
  },
];

/** Other APIs, whose contents are those of chats. */
export const otherApis: Question[] = [
  {
    name: 'messages',
    of: both,
    path: '/v1/messages',
    body: { model: 'tiny', max_tokens: 24, temperature: 0, messages: messages.slice(1) },
  },
  {
    name: 'messages streamed',
    of: both,
    path: '/v1/messages',
    body: { model: 'tiny', max_tokens: 24, temperature: 0, messages: messages.slice(1), stream: true },
  },
  {
    name: 'responses',
    of: both,
    path: '/v1/responses',
    body: { model: 'tiny', max_output_tokens: 24, temperature: 0, input: 'Which way?' },
  },
  {
    name: 'responses streamed',
    of: both,
    path: '/v1/responses',
    body: { model: 'tiny', max_output_tokens: 24, temperature: 0, input: 'Which way?', stream: true },
  },
];

/** What an engine refuses, each in its own words, which are the client's to read. */
export const refusals: Question[] = [
  {
    name: 'a model it does not serve',
    of: ['vllm'],
    path: completions,
    body: { ...openai, model: 'nope', prompt },
  },
  { name: 'bad JSON', of: both, path: completions, body: '{"model": "tiny", "prompt": [1, 2' },
  { name: 'bad JSON to chat', of: both, path: chat, body: 'hello' },
  { name: 'bad JSON to /generate', of: ['sglang'], path: generate, body: '{bad' },
  { name: 'no messages', of: both, path: chat, body: { ...openai } },
  {
    name: 'a prompt of a wrong type',
    of: ['sglang'],
    path: generate,
    body: { input_ids: 'no', sampling_params: {} },
  },
  {
    name: 'a prompt beyond its context',
    of: both,
    path: completions,
    body: { ...openai, prompt: Array(3000).fill(7) },
  },
  {
    name: 'a streamed prompt beyond its context',
    of: ['sglang'],
    path: generate,
    body: { input_ids: Array(3000).fill(7), stream: true },
  },
  {
    name: 'a negative number of tokens',
    of: both,
    path: completions,
    body: { ...openai, prompt, max_tokens: -1 },
  },
];

export function questionsTo(kind: EngineKind, questions: Question[]): Question[] {
  return questions.filter((question) => question.of.includes(kind));
}
