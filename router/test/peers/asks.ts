import { request } from '../harness/client.ts';

/** A request as the client sends it. */
export interface Ask {
  readonly name: string;
  readonly method: string;
  readonly target: string;
  /** Lines beside Host, Content-Type and Content-Length. */
  readonly fields: readonly string[];
  readonly body: string;
}

const ask = (name: string, target: string, body: string, fields: readonly string[] = []): Ask => ({
  name,
  method: 'POST',
  target,
  fields: ['content-type: application/json', ...fields],
  body,
});

const generate = (name: string, body: string, fields: readonly string[] = []) =>
  ask(`/generate: ${name}`, '/generate', body, fields);
const chat = (name: string, body: string) => ask(`/v1/chat/completions: ${name}`, '/v1/chat/completions', body);
const completions = (name: string, body: string) => ask(`/v1/completions: ${name}`, '/v1/completions', body);

/** What generates: pairs serve it too. */
const generation: readonly Ask[] = [
  generate('text', '{"text":"The capital of France is","sampling_params":{"temperature":0,"max_new_tokens":8}}'),
  generate('token ids', '{"input_ids":[1,2,3,151643],"sampling_params":{"temperature":1,"max_new_tokens":8}}'),
  generate('texts', '{"text":["a","b"],"sampling_params":{"max_new_tokens":1}}'),
  generate('a batch of token ids', '{"input_ids":[[1],[2,3],[4]],"sampling_params":{"max_new_tokens":1}}'),
  generate('a stream', '{"text":"a","stream":true,"sampling_params":{"max_new_tokens":4}}'),
  generate(
    'log probabilities',
    '{"text":"a","return_logprob":true,"logprob_start_len":0,"top_logprobs_num":2,"token_ids_logprob":[1,2],"return_text_in_logprobs":true}',
  ),
  generate(
    'what training asks for',
    '{"input_ids":[1],"return_routed_experts":true,"return_hidden_states":true,"return_logprob":true,"rid":"r-1"}',
  ),
  generate(
    'sampling parameters',
    '{"text":"a","sampling_params":{"temperature":0.7,"top_p":0.95,"top_k":20,"min_p":0.05,"frequency_penalty":0.1,' +
      '"presence_penalty":-0.1,"repetition_penalty":1.05,"stop":["\\n"],"stop_token_ids":[151643],"ignore_eos":true,' +
      '"skip_special_tokens":false,"no_stop_trim":true,"regex":"a+","custom_params":{"x":1}}}',
  ),
  generate('several answers', '{"text":"a","sampling_params":{"n":2,"max_new_tokens":1}}'),
  generate(
    'integers above 2^53',
    '{"text":"a","sampling_params":{"sampling_seed":9223372036854775807},"x_id":18446744073709551615,"priority":9007199254740993}',
  ),
  generate('numbers and texts spelled otherwise', '{ "text" : "h\\u00e9\\/",\n "x_number": 1.10, "stream":false }\n'),
  generate('a field that is there twice', '{"text":"first","text":"second"}'),
  generate('sessions and adapters', '{"text":"a","session_params":{"id":"s","rid":"r","offset":-1},"lora_path":"l"}'),
  chat(
    'plain',
    '{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"max_tokens":8}',
  ),
  chat(
    'tools',
    '{"model":"m","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f",' +
      '"description":"d","parameters":{"type":"object","properties":{"x":{"type":"integer"}}},"strict":true}}],' +
      '"tool_choice":"auto","parallel_tool_calls":false}',
  ),
  chat(
    'tool results and reasoning',
    '{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"reasoning_content":"so",' +
      '"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\\"x\\": 1}"}}]},' +
      '{"role":"tool","tool_call_id":"c1","content":"2"}]}',
  ),
  chat(
    'unknown fields at every depth',
    '{"model":"m","messages":[{"role":"user","content":"Hi","x_in_message":1}],"x_on_top":{"deep":[1,{"er":null}]},' +
      '"tools":[{"type":"function","function":{"name":"f","parameters":{},"x_in_function":1},"x_in_tool":2}]}',
  ),
  chat(
    'log probabilities',
    '{"model":"m","messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":3,"logit_bias":{"50256":-100}}',
  ),
  chat(
    'a stream with usage',
    '{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true}}',
  ),
  chat(
    'an image',
    '{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What?"},' +
      '{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}]}',
  ),
  chat(
    'integers above 2^53',
    '{"model":"m","messages":[{"role":"user","content":"Hi"}],"seed":9007199254740993,"x_id":18446744073709551615}',
  ),
  chat(
    'what training asks vLLM for',
    '{"model":"m","messages":[{"role":"user","content":"Hi"}],"return_token_ids":true,"prompt_logprobs":0,' +
      '"chat_template_kwargs":{"enable_thinking":false},"vllm_xargs":{"a":1},"return_tokens_as_token_ids":true,"min_tokens":2}',
  ),
  chat(
    'two answers by a schema',
    '{"model":"m","messages":[{"role":"user","content":"Hi"}],"n":2,"temperature":0.7,"max_completion_tokens":9,' +
      '"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"},"strict":true}}}',
  ),
  completions('a text', '{"model":"m","prompt":"Once","max_tokens":4,"temperature":0.7,"top_p":0.95,"stop":["\\n"]}'),
  completions('token ids', '{"model":"m","prompt":[1,2,3],"max_tokens":4,"logprobs":1}'),
  completions('texts', '{"model":"m","prompt":["a","b"],"max_tokens":4}'),
  completions('a batch of token ids', '{"model":"m","prompt":[[1,2],[3]],"max_tokens":4}'),
  completions(
    'unknown fields and log probabilities of the prompt',
    '{"model":"m","prompt":"a","echo":true,"prompt_logprobs":1,"return_token_ids":true,"x_unknown":{"a":1.10},"seed":9007199254740993}',
  ),
  completions('a stream', '{"model":"m","prompt":"a","stream":true,"stream_options":{"include_usage":true},"n":2}'),
  ask('/generate: headers and a query', '/generate?x=%20&flag', '{"text":"a"}', [
    'x-session-id: s-1',
    'x-smg-routing-key: k-1',
    'x-correlation-id: c-1',
    'x-request-id: r-1',
    'Authorization: Bearer sk-1',
    'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    'X-Unknown: first',
    'x-unknown: second',
    'Accept-Language: de',
  ]),
];

const vllmGenerate = (name: string, body: string) =>
  ask(`/inference/v1/generate: ${name}`, '/inference/v1/generate', body);
const HI = '"model":"m","messages":[{"role":"user","content":"Hi"}]';

/** What the pairs of both kinds are asked beside. */
const single: readonly Ask[] = [
  completions('a stream of one answer', '{"model":"m","prompt":"a","stream":true,"n":1,"max_tokens":3}'),
  completions('no bound', '{"model":"m","prompt":"Once"}'),
  chat(
    'turns',
    '{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}',
  ),
];

/** The paths of vLLM's engines, and what its pairs take apart or leave whole. */
const vllmOnly: readonly Ask[] = [
  ...single,
  vllmGenerate(
    'sampling parameters',
    '{"token_ids":[1],"sampling_params":{"temperature":0.7,"top_p":0.95,"logprobs":1,"stop_token_ids":[2],"seed":7},"cache_salt":"s"}',
  ),
  ask(
    '/v1/responses: functions',
    '/v1/responses',
    '{"model":"m","input":"Hi","instructions":"x","tools":[{"type":"function","name":"f","parameters":{}}]}',
  ),
  chat('bounds of its own', `{${HI},"max_tokens":7,"max_completion_tokens":9,"min_tokens":3}`),
  chat(
    'a stream that is spelled otherwise',
    `{ ${HI} ,"stream" : true , "stream_options":{"include_usage":true}, "x_number":1.10 }\n`,
  ),
  chat('its own words about KV', `{${HI},"kv_transfer_params":{"do_remote_prefill":true,"x":9007199254740993}}`),
  chat(
    'structured outputs and stop ids',
    `{${HI},"structured_outputs":{"regex":"a+"},"stop_token_ids":[151643],"ignore_eos":true}`,
  ),
  chat(
    'a cache salt and a priority',
    `{${HI},"cache_salt":"s","priority":-1,"request_id":"r","add_generation_prompt":false}`,
  ),
  chat('one answer, said so', `{${HI},"n":1,"logprobs":true,"top_logprobs":0}`),
  completions(
    'what training asks for',
    '{"model":"m","prompt":[1,2],"logprobs":1,"return_token_ids":true,"return_tokens_as_token_ids":true}',
  ),
  completions(
    'sampling parameters',
    '{"model":"m","prompt":"a","top_k":20,"min_p":0.05,"repetition_penalty":1.05,"seed":7,"min_tokens":2}',
  ),
  completions('a list of one text', '{"model":"m","prompt":["a"],"max_tokens":4}'),
  vllmGenerate(
    'token ids',
    '{"token_ids":[1,2],"sampling_params":{"max_tokens":8,"min_tokens":2,"x_number":1.10},"model":"m"}',
  ),
  vllmGenerate(
    'a stream',
    '{"token_ids":[1,2],"sampling_params":{"max_tokens":8},"stream":true,"x_id":18446744073709551615}',
  ),
  ask('/v1/responses: a text', '/v1/responses', '{"model":"m","input":"Hi","max_output_tokens":8,"x_unknown":1.10}'),
  ask(
    '/v1/messages: a text',
    '/v1/messages',
    '{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"Hi"}]}',
  ),
  ask('/v1/completions: headers and a query', '/v1/completions?x=%20&flag', '{"model":"m","prompt":"a"}', [
    'x-session-id: s-1',
    'X-Unknown: first',
    'x-request-id: r-1',
  ]),
];

/** What pairs of SGLang engines are asked. */
export const sglangGeneration: readonly Ask[] = [...generation, ...single];

/** What vLLM's engines generate, and so do pairs of them. */
export const vllmGeneration: readonly Ask[] = [
  ...generation.filter(({ target }) => target.startsWith('/v1/')),
  ...vllmOnly,
];

/** What has one engine for an answer. */
const others: readonly Ask[] = [
  ask('/v1/embeddings', '/v1/embeddings', '{"model":"m","input":["a","b"],"dimensions":8,"x_unknown":1}'),
  ask('/v1/rerank', '/v1/rerank', '{"model":"m","query":"q","documents":["a","b"],"top_n":1,"x_unknown":1}'),
  ask('/v1/responses', '/v1/responses', '{"model":"m","input":"Hi","max_output_tokens":8,"x_unknown":1}'),
  ask('/v1/messages', '/v1/messages', '{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"Hi"}]}'),
  ask(
    '/inference/v1/generate',
    '/inference/v1/generate',
    '{"token_ids":[1,2],"sampling_params":{"max_tokens":2},"x_unknown":1}',
  ),
  ask('/tokenize', '/tokenize?x=1', '{"model":"m","prompt":"a","x_unknown":1}'),
  ask('no JSON', '/upload', 'not JSON \\', ['content-encoding: x']),
];

export const regular: readonly Ask[] = [...generation, ...others];

export const bytesOf = ({ method, target, body, fields }: Ask): string => request(method, target, body, fields);
