import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../exchange.ts';
import { startBodyThread } from '../body-calls.ts';
import { answerMergeOf, readPrefill } from './vllm-answers.ts';

const x = {} as Exchange;
const mergeIn = (prefill: string) => answerMergeOf(readPrefill(Buffer.from(prefill)).known, startBodyThread());

/** What becomes of a decode engine's answer after that of a prefill engine. */
function merged(prefill: string, decode: string): string {
  const merge = mergeIn(prefill);
  return ((merge?.responseBody(x, Buffer.from(decode)) ?? Buffer.from(decode)) as Buffer).toString();
}

test('the parameters are the engine’s own bytes; null without an object', () => {
  const params = (answer: string) => {
    const said = readPrefill(Buffer.from(answer)).params;
    return said === null ? undefined : Buffer.from(said).toString();
  };
  equal(
    params('{"a":{"kv_transfer_params":1},"kv_transfer_params" : { "id": 18446744073709551615 }}'),
    '{ "id": 18446744073709551615 }',
  );
  for (const none of ['', 'x', '{}', '{"kv_transfer_params":null}', '{"kv_transfer_params":[1]}']) {
    equal(params(none), undefined);
  }
});

test('without anything to merge the response is not read', () => {
  for (const answer of [
    '{"choices":[{"prompt_logprobs":null,"routed_experts":null}],"prompt_logprobs":null}',
    '{}',
    'x',
  ]) {
    equal(readPrefill(Buffer.from(answer)).known, null);
  }
});

test('log probabilities of the prompt, at both places; every other byte stays', () => {
  const list = '[null,{"12":{"logprob":-0.10,"rank":1,"decoded_token":"\\u00e9"}}]';
  equal(
    merged(`{"prompt_logprobs":${list}}`, '{ "id": 12345678901234567890, "prompt_logprobs" : null ,"x":1.0}'),
    `{ "id": 12345678901234567890, "prompt_logprobs" : ${list} ,"x":1.0}`,
  );
  equal(
    merged(`{"choices":[{"prompt_logprobs":${list}}]}`, '{"choices":[{"text":"a","prompt_logprobs":null}]}'),
    `{"choices":[{"text":"a","prompt_logprobs":${list}}]}`,
  );
  equal(
    merged('{"prompt_token_id_logprobs":"AAAA"}', '{"prompt_token_id_logprobs":null}'),
    '{"prompt_token_id_logprobs":"AAAA"}',
  );
});

test('cached tokens are those of the prefill engine, unless the decode engine got the number', () => {
  const usage = (cached: string) => `{"usage":{"prompt_tokens":9,"prompt_tokens_details":${cached}}}`;
  const details = '{"cached_tokens":8,"created_cache_tokens":null}';
  equal(merged(usage('{"cached_tokens":2}'), usage(details)), usage(details.replace('8', '2')));
  equal(merged(usage('{"cached_tokens":2}'), usage('null')), usage('{"cached_tokens":2}'));
  equal(merged(usage('null'), usage(details)), usage(details));
  const told = '"kv_transfer_params":{"remote_prefill_cached_tokens":2}';
  equal(readPrefill(Buffer.from(`{${told},${usage('{"cached_tokens":2}').slice(1)}`)).known, null);
});

test('streams: each event that has the field', () => {
  const prefill = '{"usage":{"prompt_tokens_details":{"cached_tokens":2}}}';
  const merge = mergeIn(prefill);
  const through = (event: string) => (merge!.responseEvent(x, Buffer.from(event)) as Buffer).toString();
  const last = 'data: {"choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":9}}}\n\n';
  equal(through(last), last.replace('9', '2'));
  for (const same of ['data: {"choices":[{"text":"a"}],"usage":null}\n\n', 'data: [DONE]\n\n', ': ping\n\n']) {
    equal(through(same), same);
  }
});

test('an answer that is no JSON passes as it is', () => {
  equal(merged('{"prompt_logprobs":[1]}', 'oh dear, no'), 'oh dear, no');
  equal(merged('{"prompt_logprobs":[1]}', '{"choices":[],"usage":'), '{"choices":[],"usage":');
});
