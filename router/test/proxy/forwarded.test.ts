import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, startScene } from '../harness/router.ts';

const names = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'via'];

test('engines get nothing about the client unless an option asks for it', async (t) => {
  const { ask } = await startScene(t);
  const asked = await ask(HELLO);
  for (const name of names) equal(asked.head.get(name), undefined);
});

test('--forwarded-headers: engines get the address of the client', async (t) => {
  const { ask } = await startScene(t, { forwardedHeaders: true });
  const asked = await ask('GET / HTTP/1.1\r\nhost: router.example\r\nx-kept: 1\r\n\r\n');
  deepEqual(
    names.map((name) => asked.head.get(name)),
    ['127.0.0.1', 'http', 'router.example', '1.1 turnout'],
  );
  equal(asked.head.get('x-kept'), '1');
});

test('--forwarded-headers: what an earlier proxy wrote is kept and extended, once each', async (t) => {
  const { ask } = await startScene(t, { forwardedHeaders: true });
  const asked = await ask(
    'GET / HTTP/1.1\r\nhost: inner\r\nX-Forwarded-For: 10.0.0.7\r\nX-Forwarded-Proto: https\r\n' +
      'X-Forwarded-Host: outer.example\r\nVia: 1.1 edge\r\n\r\n',
  );
  deepEqual(
    names.map((name) => asked.head.get(name)),
    ['10.0.0.7, 127.0.0.1', 'https', 'outer.example', '1.1 edge, 1.1 turnout'],
  );
  deepEqual(
    names.map((name) => asked.head.fields.filter(([field]) => field.toLowerCase() === name).length),
    [1, 1, 1, 1],
  );
});
