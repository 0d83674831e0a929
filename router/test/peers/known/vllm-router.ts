import type { Known } from './known.ts';

/** Requests are read into structs of its own and written anew; paths without one pass as they are but for the query. */
export const vllmRouter: Known = {
  version: '0.1.17',
  everywhere: ['header +accept: */*'],
  defaults: {
    '/generate': { stream: 'false', return_logprob: 'false', return_hidden_states: 'false' },
    '/v1/chat/completions': {
      stream: 'false',
      logprobs: 'false',
      no_stop_trim: 'false',
      ignore_eos: 'false',
      continue_final_message: 'false',
      skip_special_tokens: 'true',
      separate_reasoning: 'true',
      stream_reasoning: 'true',
      return_hidden_states: 'false',
      include_reasoning: 'true',
    },
    '/v1/completions': {
      stream: 'false',
      echo: 'false',
      no_stop_trim: 'false',
      ignore_eos: 'false',
      skip_special_tokens: 'true',
      return_hidden_states: 'false',
    },
    '/inference/v1/generate': { stream: 'false' },
  },
  asks: {
    '/generate: text': ['sampling_params.temperature: 0 → 0.0'],
    '/generate: token ids': ['sampling_params.temperature: 1 → 1.0'],
    '/generate: texts': 422,
    '/generate: log probabilities': [
      '-logprob_start_len',
      '-top_logprobs_num',
      '-token_ids_logprob',
      '-return_text_in_logprobs',
    ],
    '/generate: what training asks for': ['-return_routed_experts'],
    '/generate: sampling parameters': ['-sampling_params.custom_params'],
    '/generate: several answers': ['-sampling_params.n'],
    '/generate: integers above 2^53': ['-sampling_params.sampling_seed', '-x_id', '-priority'],
    '/generate: numbers and texts spelled otherwise': ['-x_number'],
    '/generate: a field that is there twice': 422,
    '/generate: headers and a query': [
      'target: /generate',
      'header -Authorization: Bearer sk-1',
      'header -X-Unknown: first',
      'header +authorization: Bearer sk-1',
      'header +x-unknown: first',
      'header -Accept-Language: de',
      'header +accept-language: de',
      'header lines in another order',
    ],
    '/v1/chat/completions: tools': ['-tools[0].function.strict'],
    '/v1/chat/completions: tool results and reasoning': [
      '-messages[1].content',
      '-messages[1].reasoning_content',
      '+messages[1].reasoning="so"',
    ],
    '/v1/chat/completions: unknown fields at every depth': [
      '-messages[0].x_in_message',
      '-tools[0].function.x_in_function',
      '-tools[0].x_in_tool',
    ],
    '/v1/chat/completions: log probabilities': ['logit_bias.50256: -100 → -100.0'],
    '/v1/completions: unknown fields and log probabilities of the prompt': ['x_unknown.a: 1.10 → 1.1'],
    '/v1/embeddings': ['-x_unknown'],
    '/v1/rerank': [
      'model: "m" → "default"',
      '-top_n',
      '-x_unknown',
      '+top_k=null',
      '+return_documents=true',
      '+rid=null',
      '+user=null',
    ],
    '/tokenize': ['target: /tokenize'],
    'no JSON': 400,
  },
  inPairs: {
    // The client's own key and id are lost: the key is that of the router's environment, which has none here.
    everywhere: ['header +authorization: Bearer', 'header +x-request-id: ___prefill_addr_…___decode_addr_…_…'],
    asks: {
      '/v1/chat/completions: two answers by a schema': ['temperature: 0.7 → 0.699999988079071'],
      '/v1/chat/completions: a stream that is spelled otherwise': ['x_number: 1.10 → 1.1'],
      '/v1/completions: a text': ['temperature: 0.7 → 0.699999988079071', 'top_p: 0.95 → 0.949999988079071'],
      '/v1/completions: sampling parameters': [
        'min_p: 0.05 → 0.05000000074505806',
        'repetition_penalty: 1.05 → 1.0499999523162842',
      ],
      '/v1/completions: headers and a query': [
        'target: /v1/completions',
        'header -x-session-id: s-1',
        'header -X-Unknown: first',
        'header -x-request-id: r-1',
      ],
      '/inference/v1/generate: token ids': ['sampling_params.x_number: 1.10 → 1.1'],
      '/v1/responses: a text': ['x_unknown: 1.10 → 1.1'],
    },
    // A decode engine can't tell, and breaks where it is asked (vllm-project/vllm#50792): the prefill engine's are put in.
    ourFields: { '/v1/chat/completions: what training asks vLLM for': ['decode prompt_logprobs: 0 → null'] },
    // Several answers out of one request would fetch the KV of one, and an echo is not in what is handed over.
    alone: [
      '/v1/chat/completions: two answers by a schema',
      '/v1/completions: texts',
      '/v1/completions: a batch of token ids',
      '/v1/completions: unknown fields and log probabilities of the prompt',
      '/v1/completions: a stream',
    ],
  },
};
