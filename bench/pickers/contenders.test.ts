import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseDocument } from 'yaml';
import { contenders, gatewayConfig } from './contenders.ts';

interface Config {
  readonly static_resources: {
    readonly listeners: readonly {
      readonly filter_chains: readonly {
        readonly filters: readonly {
          readonly typed_config: {
            readonly http_filters: readonly {
              readonly name: string;
              readonly typed_config: { readonly processing_mode?: Record<string, string> };
            }[];
          };
        }[];
      }[];
    }[];
    readonly clusters: readonly { readonly name: string; readonly type: string }[];
  };
}

function configOf(name: string): Config['static_resources'] {
  const config = parseDocument(readFileSync(join(import.meta.dirname, '../../examples/envoy/envoy.yaml'), 'utf8'));
  gatewayConfig(
    contenders.find((each) => each.name === name)!,
    ['http://127.0.0.1:8001'],
  )(config);
  return (config.toJS() as Config).static_resources;
}

const filtersOf = ({ listeners }: Config['static_resources']) =>
  listeners[0]!.filter_chains[0]!.filters[0]!.typed_config.http_filters;

test('without a picker Envoy chooses', () => {
  const config = configOf('envoy');
  assert.deepEqual(
    filtersOf(config).map(({ name }) => name),
    ['envoy.filters.http.router'],
  );
  assert.deepEqual(
    config.clusters.map(({ name, type }) => `${name} ${type}`),
    ['picker STATIC', 'engines STATIC'],
  );
});

test('each picker gets the messages that it is measured with', () => {
  for (const [name, before, request, response] of [
    ['turnout-hash', [], 'NONE', 'NONE'],
    ['turnout-rollout', [], 'FULL_DUPLEX_STREAMED', 'NONE'],
    ['llm-d-both', [], 'FULL_DUPLEX_STREAMED', 'FULL_DUPLEX_STREAMED'],
    ['lwepp', ['envoy.filters.http.buffer'], 'STREAMED', 'NONE'],
  ] as const) {
    const filters = filtersOf(configOf(name));
    const names = filters.map((filter) => filter.name);
    assert.deepEqual(names, [...before, 'envoy.filters.http.ext_proc', 'envoy.filters.http.router']);
    const mode = filters.at(-2)!.typed_config.processing_mode!;
    assert.deepEqual([mode['request_body_mode'], mode['response_body_mode']], [request, response]);
    // Envoy refuses another combination.
    assert.equal(mode['request_trailer_mode'], request === 'FULL_DUPLEX_STREAMED' ? 'SEND' : 'SKIP');
  }
});
