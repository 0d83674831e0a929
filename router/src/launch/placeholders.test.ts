import { deepEqual, equal, throws } from 'node:assert/strict';
import { test } from 'node:test';
import { filled, wordsOf } from './placeholders.ts';

const second = { index: 1, port: 31_001 };

test('an argument says where it differs between engines', () => {
  equal(filled('{index}', second), '1');
  equal(filled('--bootstrap-port={port+1000}', second), '--bootstrap-port=32001');
  equal(filled('{index*10+5557}', second), '5567');
  const events = (endpoint: string): string => `{"publisher":"zmq","endpoint":"tcp://*:${endpoint}"}`;
  equal(filled(events('{index+5557}'), second), events('5558'));
  equal(filled('{"kv_port":{port+1000}}', second), '{"kv_port":32001}', 'JSON ends after it');
});

test('JSON and templates are left as they are', () => {
  for (const word of [
    '{"kv_connector":"NixlConnector","kv_role":"kv_both"}',
    '{"port":1,"index":{"a":[{}]}}',
    '{{ port }}',
    '{{index}}',
    '{% for index in x %}{name}',
    '{}',
  ])
    equal(filled(word, second), word);
});

test('what only looks like a placeholder is refused', () => {
  for (const word of ['{index-1}', '{port+}', '{Index}', '{ port }', '{port*2}', '{index+x}'])
    throws(() => filled(`a${word}`, second), /the placeholders are \{index\}/, word);
  throws(() => filled('{port+40000}', second), /engine 1 would get 71001/);
});

test('a command line has the words that a shell would make of it', () => {
  deepEqual(wordsOf('  vllm   serve '), ['vllm', 'serve']);
  deepEqual(wordsOf(`"/opt/my venv/vllm" serve 'a "b"' "it's" c\\ d ""`), [
    '/opt/my venv/vllm',
    'serve',
    'a "b"',
    "it's",
    'c d',
    '',
  ]);
  deepEqual(wordsOf('"a \\"b\\" \\n"'), ['a "b" \\n']);
  throws(() => wordsOf('"vllm serve'), /a quote \("\) is not closed/);
});
