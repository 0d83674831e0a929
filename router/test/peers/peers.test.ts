import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, suite, test } from 'node:test';
import { send } from '../harness/client.ts';
import { type Ask, bytesOf, generation, regular } from './asks.ts';
import { differences } from './differences.ts';
import { type Known, expected } from './known/known.ts';
import { sglangRouter } from './known/sglang-router.ts';
import { vllmRouter } from './known/vllm-router.ts';
import { type Halves, readBootstrap } from './pair-fields.ts';
import { type Recorder, startRecorder } from './recorder.ts';
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
  /** How it runs pairs, and what makes them pairs. */
  readonly pairs: {
    readonly flags: (prefill: string, decode: string) => readonly string[];
    readonly read: typeof readBootstrap;
  } | null;
}

const peers: readonly Peer[] = [
  {
    name: 'sglang-router',
    known: sglangRouter,
    flags: ['--policy', 'round_robin', '--disable-health-check'],
    pairs: {
      flags: (prefill, decode) => ['--pd-disaggregation', '--prefill', prefill, '8998', '--decode', decode],
      read: readBootstrap,
    },
  },
  {
    name: 'vllm-router',
    known: vllmRouter,
    flags: ['--policy', 'round_robin', '--health-check-interval-secs', '3600'],
    pairs: null,
  },
];

/** What this router adds where the client gave no id. */
const ourIds = ['header +x-correlation-id: req-…', 'header +x-request-id: req-…'];
const expectedOfOurs = ({ fields }: Ask): readonly string[] =>
  fields.some((line) => line.startsWith('x-request-id')) ? [] : ourIds;

/** Sends a request. @returns the status and what the recorders got of it */
async function exchange(t: TestContext, url: string, ask: Ask, recorders: readonly Recorder[]) {
  const { status } = await send(t, url, bytesOf(ask));
  return { status, got: recorders.map((recorder) => recorder.take()) };
}

for (const { name, known, flags, pairs } of peers) {
  suite(`what engines get from ${name} and from this router`, { skip: whyNotInstalled(name, known.version) }, () => {
    test('one engine', async (t) => {
      const engine = await startRecorder(t);
      const { theirs, ours } = await startBoth(t, name, ['--worker-urls', engine.engine.url, ...flags]);
      engine.take();
      for (const ask of regular) {
        await t.test(ask.name, async () => {
          const peer = await exchange(t, theirs, ask, [engine]);
          const want = expected(known, ask, false);
          const seen = peer.got[0]!.map((recorded) => differences(ask, recorded).toSorted());
          deepEqual([peer.status, seen], typeof want === 'number' ? [want, []] : [200, [want]]);

          const own = await exchange(t, ours, ask, [engine]);
          equal(own.status, 200);
          deepEqual(
            own.got[0]!.map((recorded) => differences(ask, recorded).toSorted()),
            [expectedOfOurs(ask)],
          );
        });
      }
    });

    test('a pair of engines', { skip: pairs === null && 'its pairs are vLLM style: not compared yet' }, async (t) => {
      const { flags: pairFlags, read } = pairs!;
      const prefill = await startRecorder(t);
      const decode = await startRecorder(t, prefill);
      const both = [prefill, decode];
      const urls = [prefill.engine.url, decode.engine.url] as const;
      const { theirs, ours } = await startBoth(t, name, [...pairFlags(...urls), ...flags]);
      for (const recorder of both) recorder.take();
      const halves = async (url: string, ask: Ask): Promise<Halves | number> => {
        const { status, got } = await exchange(t, url, ask, both);
        const [first, second] = got.map(([only, ...others]) => {
          deepEqual(others, []);
          return only;
        });
        if (first === undefined || second === undefined) {
          deepEqual([first, second], [undefined, undefined]);
          return status;
        }
        equal(status, 200);
        return read(first, second);
      };
      const lines = (ask: Ask, pair: Halves): string[][] =>
        [pair.prefill, pair.decode].map((recorded) => differences(ask, recorded).toSorted());
      for (const ask of generation) {
        await t.test(ask.name, async () => {
          const peer = await halves(theirs, ask);
          const want = expected(known, ask, true);
          const own = await halves(ours, ask);
          ok(typeof own !== 'number', `refused with ${JSON.stringify(own)}`);
          const ourLines = expectedOfOurs(ask);
          deepEqual(lines(ask, own), [ourLines, ourLines]);
          if (typeof want === 'number' || typeof peer === 'number') equal(peer, want);
          else {
            deepEqual(lines(ask, peer), [want, want]);
            deepEqual(own.fields, peer.fields);
          }
        });
      }
    });

    test('the table of known differences names requests that are made', () => {
      const made = new Set(regular.map((ask) => ask.name));
      equal(made.size, regular.length);
      const named = [...Object.keys(known.asks), ...Object.keys(known.inPairs)];
      deepEqual(
        named.filter((each) => !made.has(each)),
        [],
      );
    });
  });
}
