import { type AliasFlag, type Peer, type Values, not, readAs, renamed, same, vital } from './alias.ts';

const noTrainer = 'it is about the trainer’s own engines, not about the router.';

/** They wait without a bound there. A week is as good, and a timer can hold it. */
const WAIT_SECS = 604_800;
const WAITING = 1_000_000;

function maxConnections(texts: readonly string[]): Values {
  return { ...readAs('maxConcurrentRequests', texts), queueSize: WAITING, queueTimeoutSecs: WAIT_SECS };
}

const flags: readonly AliasFlag[] = [
  same('host', '0.0.0.0'),
  same('port'),
  renamed('sglang-router-ip', 'host', 'In slime it also means: start no router.'),
  renamed('sglang-router-port', 'port', 'Without it 30000; there slime picks one at random.'),
  not('use-slime-router', 'nothing', 'this command runs no other.'),
  vital(
    'slime-router-middleware-paths',
    'many',
    'Python middleware is not run, and without it /retrieve_from_text and cached tokens would be missing.',
  ),
  renamed('slime-router-timeout', 'requestTimeoutSecs', ''),
  {
    ...renamed(
      'slime-router-max-connections',
      'maxConcurrentRequests',
      'Requests under way at once; more wait, as there.',
    ),
    ours: ['maxConcurrentRequests', 'queueSize', 'queueTimeoutSecs'],
    read: maxConnections,
  },
  renamed(
    'slime-router-health-check-failure-threshold',
    'healthFailureThreshold',
    'A worker that failed comes back once it is well again; there never.',
    3,
  ),
  renamed('rollout-health-check-interval', 'healthCheckIntervalSecs', '', 30),
  renamed('sglang-router-policy', 'policy', '', 'least_inflight'),
  renamed('sglang-router-request-timeout-secs', 'requestTimeoutSecs', 'None unless it is given.'),
  { ...renamed('verbose', 'logLevel', 'The level debug.'), takes: 'nothing', read: () => ({ logLevel: 'debug' }) },
  not('sglang-host', 'one', 'workers are named with --worker-urls or added by POST /add_worker.'),
  not('sglang-port', 'one', 'workers are named with --worker-urls or added by POST /add_worker.'),
  not('tokenizer-name', 'one', 'prompts are not tokenised here.'),
  not('sglang-server-concurrency', 'one', noTrainer),
  not('rollout-num-gpus', 'one', noTrainer),
  not('rollout-num-gpus-per-engine', 'one', noTrainer),
];

export const slime: Peer = {
  name: 'SlimeRouter',
  source: 'slime of early 2026 and its documentation',
  verbs: ['slime-router', 'slime_router'],
  flags,
  settings: { workerApi: 'slime' },
};
