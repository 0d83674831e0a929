import { equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../config/options.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { checkRolloutFields } from './check-generation.ts';

const configOf = (more: Partial<Config>): Config => ({ plugin: [], deployments: [], ...more }) as unknown as Config;
const facts = { kind: 'vllm', returnsRoutedExperts: null } as EngineFacts;

test('where the fields of rollout inference are on, what they need is named', () => {
  equal(checkRolloutFields(facts, configOf({})).length, 0);
  const [logprobs, experts] = checkRolloutFields(facts, configOf({ swapSnapshots: '/s/{identity}' }));
  match(logprobs!.text, /--logprobs-mode processed_logprobs.*"logprobs":"processed"/);
  match(experts!.text, /--enable-return-routed-experts/);
  equal(checkRolloutFields(facts, configOf({ plugin: ['rollout-fields:{"logprobs":"processed"}'] })).length, 1);
});
