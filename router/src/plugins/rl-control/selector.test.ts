import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { parseSelector } from './selector.ts';

const labels = { engine: 'sglang', tp_size: '2', role: 'policy', path: '/models/a,b', q: 'say "hi"' };
const selects = (text: string): boolean => {
  const selector = parseSelector(text);
  if (typeof selector !== 'function') throw new Error(`${text}: ${selector.message} at ${selector.offset}`);
  return selector(labels);
};

test('each operator, alone and joined', () => {
  for (const text of [
    'engine=sglang',
    'engine!=vllm',
    'tp_size in (1, 2,4)',
    'role notin (reward, judge)',
    '  engine = sglang ,  role = policy  ',
    'engine in(sglang,vllm)',
    'missing!=x',
    'missing notin (x)',
    'role="policy"',
    'path="/models/a,b"',
    'q="say \\"hi\\""',
  ]) {
    equal(selects(text), true, text);
  }
  for (const text of [
    'engine=vllm',
    'engine!=sglang',
    'tp_size in (8)',
    'role notin (policy)',
    'engine=sglang,tp_size=4',
    'missing=x',
    'missing in (x)',
  ]) {
    equal(selects(text), false, text);
  }
});

test('a wrong selector is refused', () => {
  for (const text of [
    '',
    '=x',
    'engine',
    'engine==x',
    'engine in x',
    'engine in (a,',
    'engine=a b',
    'engine="open',
    'engine=a,',
    'engine=',
  ]) {
    equal(typeof parseSelector(text), 'object', text);
  }
});
