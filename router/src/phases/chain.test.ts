import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../test/harness/policy.ts';
import type { Plugin } from '../plugin.ts';
import { Plugins } from './chain.ts';

test('plugins are asked about their paths only, whatever path the request before had, and also if added later', () => {
  const asked: string[] = [];
  const plugin = (name: string, pathPrefix?: string): Plugin => ({
    name,
    ...(pathPrefix !== undefined && { pathPrefix }),
    appliesTo: ({ path }) => {
      asked.push(`${name} ${path}`);
      return false;
    },
  });
  const plugins = new Plugins([plugin('v1', '/v1/'), plugin('all')]);
  const take = (path: string): void => {
    const x = exchangeOf();
    x.path = path;
    plugins.takePart(x);
  };
  for (const path of ['/generate', '/v1/a', '/v1/a', '/generate']) take(path);
  plugins.addFirst(plugin('first', '/generate'));
  take('/generate');
  deepEqual(asked, [
    'all /generate',
    'v1 /v1/a',
    'all /v1/a',
    'v1 /v1/a',
    'all /v1/a',
    'all /generate',
    'first /generate',
    'all /generate',
  ]);
});
