import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, suite, test } from 'node:test';
import { send } from '../harness/client.ts';
import { type Ask, bytesOf, regular } from './asks.ts';
import { differences } from './differences.ts';
import { type Known, expected } from './known/known.ts';
import { sglangRouter } from './known/sglang-router.ts';
import { vllmRouter } from './known/vllm-router.ts';
import { type PairStyle, mooncakePairs, nixlPairs, sglangPairs } from './pair-styles.ts';
import { type Recorded, type Recorder, startRecorder } from './recorder.ts';
import { type PeerName, startBoth, whyNotInstalled } from './started.ts';

/**
 * The same requests through another router and through this one, both started with the very same flags: what do engines get?
 * From this one every byte of the client's, and the fields of pairs as the other one sends them. What the other one makes of
 * them is in `known/`, to the last field, so that a difference that is not there is seen.
 */
interface Peer {
  readonly name: PeerName;
  readonly known: Known;
  /** So that no question of its own comes between. */
  readonly flags: readonly string[];
  readonly pairs: readonly PairStyle[];
}

const peers: readonly Peer[] = [
  {
    name: 'sglang-router',
    known: sglangRouter,
    flags: ['--policy', 'round_robin', '--disable-health-check'],
    pairs: [sglangPairs],
  },
  {
    name: 'vllm-router',
    known: vllmRouter,
    flags: ['--policy', 'round_robin', '--health-check-interval-secs', '3600'],
    pairs: [nixlPairs, mooncakePairs],
  },
];

/** The prefixes of ids, by path; those of other paths begin with `req-`. */
const idPrefixes = new Map([
  ['/generate', 'gnt-'],
  ['/v1/chat/completions', 'chatcmpl-'],
  ['/v1/completions', 'cmpl-'],
  ['/v1/responses', 'resp-'],
  ['/v1/messages', 'msg_'],
]);

/** What this router adds where the client gave no id. */
function expectedOfOurs({ target, fields }: Ask): readonly string[] {
  if (fields.some((line) => line.startsWith('x-request-id'))) return [];
  const id = `${idPrefixes.get(target.split('?', 1)[0]!) ?? 'req-'}…`;
  return [`header +x-correlation-id: ${id}`, `header +x-request-id: ${id}`];
}

/** Sends a request. @returns the status and what each engine got of it */
async function exchange(t: TestContext, url: string, ask: Ask, engines: readonly Recorder[]) {
  const { status } = await send(t, url, bytesOf(ask));
  return { status, got: engines.map((engine) => engine.take()) };
}

const lines = (ask: Ask, recorded: readonly Recorded[]): string[][] =>
  recorded.map((each) => differences(ask, each).toSorted());

async function compareOneEngine(t: TestContext, { name, known, flags }: Peer): Promise<void> {
  const engine = await startRecorder(t);
  const { theirs, ours } = await startBoth(t, name, ['--worker-urls', engine.engine.url, ...flags]);
  engine.take();
  for (const ask of regular) {
    await t.test(ask.name, async () => {
      const peer = await exchange(t, theirs, ask, [engine]);
      const want = expected(known, ask, false);
      deepEqual([peer.status, lines(ask, peer.got[0]!)], typeof want === 'number' ? [want, []] : [200, [want]]);
      const own = await exchange(t, ours, ask, [engine]);
      deepEqual([own.status, lines(ask, own.got[0]!)], [200, [expectedOfOurs(ask)]]);
    });
  }
}

async function comparePairs(t: TestContext, { name, known, flags }: Peer, style: PairStyle): Promise<void> {
  const prefill = await startRecorder(t);
  const decode = await startRecorder(t, prefill);
  const both = [prefill, decode];
  const pairFlags = await style.flags(t, prefill.engine.url, decode.engine.url);
  const { theirs, ours } = await startBoth(t, name, [...pairFlags, ...flags]);
  for (const engine of both) engine.take();
  const read = (ask: Ask, got: readonly (readonly Recorded[])[]) => {
    deepEqual(
      got.map(({ length }) => length),
      [1, 1],
    );
    const { fields, rest } = style.read(ask, got[0]![0]!, got[1]![0]!);
    return { fields, rest: rest.map((each) => each.toSorted()) };
  };
  const { alone, refused, ourFields } = known.inPairs;
  for (const ask of style.asks) {
    await t.test(ask.name, async () => {
      const peer = await exchange(t, theirs, ask, both);
      const own = await exchange(t, ours, ask, both);
      const isRefused = refused.includes(ask.name);
      equal(own.status, isRefused ? 501 : 200);
      const ourLines = expectedOfOurs(ask);
      const isPair = !isRefused && !alone.includes(ask.name);
      const ourReading = isPair ? read(ask, own.got) : null;
      deepEqual(
        ourReading?.rest ?? own.got.map((each) => lines(ask, each)),
        isPair ? [ourLines, ourLines] : [[], isRefused ? [] : [ourLines]],
      );

      const want = expected(known, ask, true);
      if (typeof want === 'number') {
        deepEqual(peer, { status: want, got: [[], []] });
        return;
      }
      equal(peer.status, 200);
      const { fields, rest } = read(ask, peer.got);
      deepEqual(rest, [want.filter((line) => !style.habits.includes(line)), want]);
      if (isPair) deepEqual(ourReading!.fields, [...fields, ...(ourFields[ask.name] ?? [])].toSorted());
    });
  }
}

test('one of the other routers is installed', () => {
  const reasons = peers.map(({ name, known }) => whyNotInstalled(name, known.version));
  ok(reasons.includes(false), reasons.join('; '));
});

for (const peer of peers) {
  const { name, known, pairs } = peer;
  suite(`what engines get from ${name} and from this router`, { skip: whyNotInstalled(name, known.version) }, () => {
    test('one engine', (t) => compareOneEngine(t, peer));
    for (const style of pairs) test(`pairs of engines, ${style.name}`, (t) => comparePairs(t, peer, style));

    test('there are thirty requests of each kind, and the table of known differences names no other', () => {
      const all = [regular, ...pairs.map(({ asks }) => asks)];
      const { asks, ourFields, alone, refused } = known.inPairs;
      for (const each of all) {
        equal(new Set(each.map((ask) => ask.name)).size, each.length);
        ok(each.filter((ask) => !alone.includes(ask.name) && !refused.includes(ask.name)).length >= 30);
      }
      const made = new Set(all.flat().map((ask) => ask.name));
      const named = [...[known.asks, asks, ourFields].flatMap((table) => Object.keys(table)), ...alone, ...refused];
      deepEqual(
        named.filter((each) => !made.has(each)),
        [],
      );
    });
  });
}
