import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { normalPath } from '../classify/classify.ts';
import { controlOf, controls, pathsDecidedByBody, steersEngine } from './controls.ts';

const STEERING = [
  '/update_weights_from_disk',
  '/update_weights_from_a_later_release',
  '/update_weight_version',
  '/update_weights',
  '/init_weights_update_group',
  '/destroy_weights_update_group',
  '/get_weights_by_name',
  '/post_process_weights',
  '/init_weight_transfer_engine',
  '/shutdown_weight_transfer_engine',
  '/get_remote_instance_transfer_engine_info',
  '/pd_role_switch',
  '/start_weight_update',
  '/finish_weight_update',
  '/begin_weight_update',
  '/end_weight_update',
  '/fetch_weights',
  '/collective_rpc',
  '/flush_cache',
  '/reset_prefix_cache',
  '/reset_mm_cache',
  '/clear_hicache_storage_backend',
  '/release_memory_occupation',
  '/resume_memory_occupation',
  '/sleep',
  '/wake_up',
  '/pause',
  '/resume',
  '/pause_generation',
  '/continue_generation',
  '/slow_down',
  '/areal_update_weights_xccl',
  '/areal_set_update_weight_meta',
  '/areal_pause_generation',
  '/set_internal_state',
  '/scale_elastic_ep',
  '/load_lora_adapter',
  '/v1/load_lora_adapter',
  '/unload_lora_adapter',
  '/v1/unload_lora_adapter',
  '/start_profile',
  '/stop_profile',
  '/abort_request',
  '/abort_requests',
  '/inference/v1/abort_requests',
  '/server_info',
  '/get_server_info',
];

const FOR_CLIENTS = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/models',
  '/generate',
  '/inference/v1/generate',
  '/encode',
  '/v1/embeddings',
  '/tokenize',
  '/model_info',
  '/is_paused',
  '/is_sleeping',
  '/v1/loads',
  '/open_session',
  '/',
];

test('calls that control an engine differ from calls that only ask it', () => {
  for (const path of STEERING) assert.ok(steersEngine(path), path);
  for (const path of FOR_CLIENTS) assert.ok(!steersEngine(path), path);
});

test('however an engine\u2019s server would decode a path to a control, it is one here', () => {
  const spelled = fc.tuple(fc.constantFrom(...STEERING), fc.infiniteStream(fc.nat(5))).map(([path, choices]) => {
    const next = (): number => choices.next().value as number;
    const code = (char: string): string => char.charCodeAt(0).toString(16);
    const chars = [...path].map((char, i) => {
      if (i > 0 && next() === 0) return `%${next() < 3 ? code(char) : code(char).toUpperCase()}`;
      return char;
    });
    return `${next() === 0 ? '/root' : ''}${chars.join('')}${next() === 0 ? '/' : ''}${next() === 0 ? '?a=/v1/models' : ''}`;
  });
  fc.assert(
    fc.property(spelled, (target) => assert.ok(steersEngine(normalPath(target)), target)),
    { numRuns: 2_000 },
  );
});

test('a control path behind a prefix is one still: engines have a --root-path', () => {
  for (const path of ['/api/pause', '/a/b/update_weights_from_disk', '/api/v1/load_lora_adapter', '/x'.repeat(20)])
    assert.ok(steersEngine(path), path);
  for (const path of ['/api/v1/chat/completions', '/v1/responses/resp_1/cancel', '/v1/models/org/name'])
    assert.ok(!steersEngine(path), path);
});

test('other spellings of a path are the same path', () => {
  for (const spelling of [
    '/pa%75se',
    '//pause',
    '/pause/',
    '/v1/../pause',
    '/v1/%2e%2e/pause',
    '/./pause?x=1',
    '/%2Fpause',
  ])
    assert.ok(steersEngine(normalPath(spelling)), spelling);
});

test('every path that empties a cache steers, and the old ones are still among them', () => {
  for (const { path } of controls) assert.ok(steersEngine(path.replace('*', 'x')), path);
  for (const path of [
    '/flush_cache',
    '/reset_prefix_cache',
    '/sleep',
    '/update_weights_from_disk',
    '/areal_update_weights',
    '/release_kv_cache_memory',
  ])
    assert.equal(controlOf(path)?.flushes, true, path);
  assert.deepEqual([...pathsDecidedByBody], ['/abort_request', '/abort_requests', '/inference/v1/abort_requests']);
});
