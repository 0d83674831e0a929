import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { metric } from '../admission/metric.ts';
import { freePort } from '../harness/free-port.ts';
import { startFakeKube } from '../harness/kube-api.ts';
import { until } from '../harness/within.ts';
import { type Answered, type EnvoyScene, startEnvoy } from './scene.ts';

const FALLBACKS = { request: 'NONE', response: 'NONE', file: 'envoy-fallbacks.yaml', engines: 4 } as const;
const [SESSIONS, TURNS] = [30, 6];
const failClosed = (text: string): string => text.replace('failure_mode_allow: true', 'failure_mode_allow: false');

interface Load {
  /** Called before each turn, with how many turns began before it. */
  readonly onTurn?: (begun: number) => void;
  /** Asks again after a response of this status. */
  readonly repeats?: number;
}

/** Sessions side by side, turn after turn. @returns responses that are not whole */
async function runSessions({ ask }: EnvoyScene, { onTurn = () => {}, repeats }: Load): Promise<Answered[]> {
  let begun = 0;
  const bad: Answered[] = [];
  const one = async (session: number): Promise<void> => {
    for (let turn = 0; turn < TURNS; turn++) {
      onTurn(begun++);
      let answer = await ask(`s${session}`, { rid: `s${session}.${turn}` });
      while (answer.status === repeats) answer = await ask(`s${session}`, { rid: `s${session}.${turn}` });
      if (answer.status !== 200 || answer.isCut || !answer.text.includes('"finish_reason"')) bad.push(answer);
    }
  };
  await Promise.all(Array.from({ length: SESSIONS }, (_, session) => one(session)));
  return bad;
}

/** Engines have done each turn, and each once. */
function assertDoneOnce({ log }: EnvoyScene): void {
  assert.equal(new Set(log.map(({ call }) => call)).size, SESSIONS * TURNS);
  assert.equal(log.length, SESSIONS * TURNS);
}

function assertSticky({ log }: EnvoyScene): void {
  const pairs = new Set(log.map(({ call, engine }) => `${call.split('.')[0]} ${engine}`));
  assert.equal(pairs.size, SESSIONS);
}

test('engines that are killed: their requests are served elsewhere, none is lost, none is done twice', async (t) => {
  const scene = await startEnvoy(t, FALLBACKS, {
    policy: 'least_inflight',
    pickerFallbacks: 3,
    disableHealthCheck: false,
    healthCheckIntervalSecs: 1,
  });
  const { engines, router } = scene;
  await until('the engines serve', () => router.fleet.eligible.length === 4);
  const kills: Promise<void>[] = [];
  const onTurn = (begun: number): void => {
    // All sessions have requests at the engines.
    if (begun === SESSIONS * 2) kills.push(engines[0]!.kill());
    if (begun === SESSIONS * 4) kills.push(engines[1]!.kill());
  };
  assert.deepEqual(await runSessions(scene, { onTurn }), []);
  await Promise.all(kills);
  assertDoneOnce(scene);
  await until('the dead engines get no requests', () => router.fleet.eligible.length === 2);
  await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
  const loads = router.fleet.workers.map((worker) => router.fleet.load(worker));
  assert.deepEqual(loads, [0, 0, 0, 0]);
});

test('streams whose engine is killed end truncated, and the others are whole', async (t) => {
  let held = 0;
  const script = () => ({ ids: [], holdAt: 50, onHeld: () => void held++ });
  const { engines, log, begin } = await startEnvoy(t, { ...FALLBACKS, script }, { policy: 'round_robin' });
  const streams = await Promise.all(
    Array.from({ length: 20 }, (_, i) => begin(`s${i}`, { rid: `s${i}.0`, stream: true, max_tokens: 100 })),
  );
  await until('all are in the middle', () => held === 20);
  await engines[0]!.kill();
  for (const { core } of engines.slice(1)) core.release(() => true);
  const answers = await Promise.all(streams.map((rest) => rest()));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  const whole = answers.filter(({ text, isCut }) => !isCut && text.endsWith('data: [DONE]\n\n'));
  assert.deepEqual([whole.length, answers.filter(({ isCut }) => isCut).length, log.length], [15, 5, 15]);
  assert.equal(new Set(log.map(({ call }) => call)).size, 15);
});

test('a request that another engine served counts there', async (t) => {
  const { engines, ask, router } = await startEnvoy(
    t,
    { ...FALLBACKS, engines: 2 },
    { policy: 'round_robin', pickerFallbacks: 1 },
  );
  await engines[0]!.kill();
  for (let turn = 0; turn < 6; turn++) assert.equal((await ask('s0', { rid: `s0.${turn}` })).status, 200);
  await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
  const responses = `turnout_worker_responses_total{worker="${engines[1]!.url}",status="2xx"}`;
  assert.equal(await metric(router, responses), 6);
});

for (const isOpen of [true, false]) {
  test(`while no picker runs the gateway ${isOpen ? 'chooses engines itself (fail open)' : 'refuses (fail closed)'}, and one that is started again is asked`, async (t) => {
    const modes = { ...FALLBACKS, edit: isOpen ? (text: string) => text : failClosed };
    const { router, log, ask, startPicker } = await startEnvoy(t, modes);
    const call = async (turn: number): Promise<number> => (await ask('s1', { rid: `s1.${turn}` })).status;
    assert.equal(await call(0), 200);
    await router.close();
    const statuses = await Promise.all(Array.from({ length: 40 }, (_, i) => call(i + 1)));
    assert.deepEqual(new Set(statuses), new Set([isOpen ? 200 : 500]));
    assert.equal(log.length, isOpen ? 41 : 1);
    const next = await startPicker();
    let turn = 41;
    await until('it is asked again', async () => {
      await call(turn++);
      return (await (await fetch(next.metricsUrl)).text()).includes('turnout_requests_total{outcome="complete"} 1');
    });
    assert.equal(new Set(log.map(({ call: name }) => name)).size, log.length, 'none was done twice');
  });

  test(`pickers that end and start under load, ${isOpen ? 'fail open: no request fails' : 'fail closed: refused requests are repeated, and sessions stay'}; none is lost or done twice`, async (t) => {
    const modes = { ...FALLBACKS, edit: isOpen ? (text: string) => text : failClosed };
    const scene = await startEnvoy(t, modes, { policy: 'consistent_hash' });
    let { router: picker } = scene;
    let restarts = Promise.resolve();
    const restart = async (): Promise<void> => {
      await picker.close();
      picker = await scene.startPicker();
    };
    const onTurn = (begun: number): void => {
      if (begun === SESSIONS * 2 || begun === SESSIONS * 4) restarts = restarts.then(restart);
    };
    const bad = await runSessions(scene, isOpen ? { onTurn } : { onTurn, repeats: 500 });
    await restarts;
    assert.deepEqual(bad, []);
    assertDoneOnce(scene);
    if (!isOpen) assertSticky(scene);
  });
}

test('a leader that ends under load, fail closed: another picker leads, no request fails, and sessions stay', async (t) => {
  await startFakeKube(t);
  const secondPort = await freePort();
  const HEALTH =
    '      common_lb_config: { healthy_panic_threshold: { value: 0 } }\n' +
    '      health_checks:\n' +
    '        - { timeout: 60s, interval: 1s, no_traffic_interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1,\n' +
    '            tls_options: { alpn_protocols: [h2] },\n' +
    '            grpc_health_check: { service_name: envoy.service.ext_proc.v3.ExternalProcessor } }\n';
  // As a Service of Kubernetes does with readiness probes: only the leader is asked.
  const edit = (text: string): string =>
    failClosed(text)
      .replace(/(?<= {6}connect_timeout: 5s\n)(?= {6}typed)/, HEALTH)
      .replace(/( +- endpoint: .*port_value: )9002(.*\n)/, `$19002$2$1${secondPort}$2`);
  const options = { policy: 'consistent_hash', leaderElection: 'auto', pickerHealthChecking: true };
  const scene = await startEnvoy(t, { ...FALLBACKS, edit }, options);
  const { router: first, ask } = scene;
  const second = await scene.startPicker({ pickerPort: secondPort });
  await until('the first leads', () => first.picker!.leader!.isLeading);
  await until('the gateway knows it', async () => (await ask('s0', { rid: 's0.9' })).status === 200);
  scene.log.length = 0;
  let isEnded = false;
  let ended: Promise<void> | null = null;
  const onTurn = (begun: number): void => {
    if (begun === SESSIONS * 2) ended = first.close(10_000).then(() => void (isEnded = true));
  };
  assert.deepEqual(await runSessions(scene, { onTurn }), []);
  assertDoneOnce(scene);
  assertSticky(scene);
  for (let turn = TURNS; !isEnded; turn++) {
    assert.equal((await ask('s0', { rid: `s0.${turn}` })).status, 200);
    await delay(20);
  }
  await ended!;
  assert.ok(second.picker!.leader!.isLeading);
  const { status } = await ask('s0', { rid: 's0.10' });
  assert.equal(status, 200);
  const complete = 'turnout_requests_total{outcome="complete"}';
  assert.ok((await metric(second, complete)) > 0);
});
