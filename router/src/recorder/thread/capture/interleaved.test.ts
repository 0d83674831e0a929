import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import {
  CaptureScene,
  type Said,
  logprobsOf,
  tokenizerFolder,
  visible,
} from '../../../../test/harness/capture-scene.ts';
import { encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { assemble } from '../export/trajectory.ts';
import { MemoryStore } from '../store/memory.ts';
import type { Turn } from '../../shared/turn.ts';

const tokenizerPath = tokenizerFolder();

/** A trajectory as its client has it, and as it really happened. */
interface Line {
  readonly text: string;
  readonly ids: readonly number[];
  readonly mask: readonly number[];
  readonly logprobs: readonly number[];
  readonly isStopped: boolean;
}

const EMPTY: Line = { text: '', ids: [], mask: [], logprobs: [], isStopped: false };

const [of, ten, often, call] = [' of', ' ten', ' often', ' call'].map(encode) as [
  number[],
  number[],
  number[],
  number[],
];
const apart = [...encode(' of'), ...encode('ten')];
const sampled = fc.tuple(
  fc.array(fc.constantFrom(of, ten, often, call, apart), { minLength: 1, maxLength: 2 }).map((parts) => parts.flat()),
  fc.boolean(),
);
const step = fc.record({
  session: fc.nat(3),
  /** Which of the session's lines is gone on with. */
  line: fc.nat(30),
  more: fc.nat(1),
  sampled,
  asText: fc.boolean(),
  /** So many of the sampled tokens its client keeps; all of them, mostly. */
  kept: fc.oneof(
    { weight: 4, arbitrary: fc.constant(Infinity) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 2 }) },
  ),
  restarts: fc.nat(12).map((n) => n === 0),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** Whatever a session was asked and answered is on record as its own, or flagged. @returns how often that was flagged */
async function check(steps: readonly Step[], maxBytes: number) {
  const store = new MemoryStore(1e9);
  const turns = new Map<string, Turn>();
  const lines = new Map<number, Line[]>();
  let scene = await CaptureScene.start({ tokenizerPath, maxBytes }, store);
  let flagged = 0;
  for (const [
    n,
    {
      session,
      line: which,
      more: asked,
      sampled: [ids, isStopped],
      asText,
      kept,
      restarts,
    },
  ] of steps.entries()) {
    if (restarts) scene = await CaptureScene.start({ tokenizerPath, maxBytes }, store);
    const own = lines.get(session) ?? [EMPTY];
    lines.set(session, own);
    const line = own[which % own.length]!;
    const more = `${line.isStopped ? '<|im_end|>' : ''}\n<|im_start|>${asked}\n`;
    const added = encode(more).slice(line.isStopped ? 1 : 0);
    const prompt = [...line.ids, ...added];
    const said: Said = { ids: isStopped ? [...ids, endOfTurn] : ids, logprob: -1 - n, version: `${n % 3}` };
    const { ids: sent, turn } = await scene.ask({
      session: `s${session}`,
      prompt: asText ? line.text + more : prompt,
      said,
    });
    turns.set(turn.id, turn);
    assert.equal(turn.drift, null);
    const whole = lineOf(turns, turn);
    const part = kept < ids.length ? ids.slice(0, kept) : said.ids;
    const isWhole = part.length === said.ids.length;
    const next: Line = {
      text: line.text + more + visible({ ...said, ids: part, finish: isWhole && isStopped ? 'stop' : 'length' }),
      ids: [...prompt, ...part],
      mask: [...line.mask, ...added.map(() => 0), ...part.map(() => 1)],
      logprobs: [...line.logprobs, ...added.map(() => 0), ...logprobsOf(said).slice(0, part.length)],
      isStopped: isWhole && isStopped,
    };
    if (whole.turns.some(({ isAmbiguous }) => isAmbiguous === true)) {
      flagged++;
      // What its client has may be another one of several: it goes on with none of them.
      continue;
    }
    const to = next.ids.length;
    assert.deepEqual(sent, prompt, `step ${n}`);
    assert.deepEqual([...whole.ids].slice(0, to), next.ids, `step ${n}`);
    assert.deepEqual([...whole.mask].slice(0, to), next.mask, `step ${n}`);
    assert.deepEqual([...whole.logprobs].slice(0, to), next.logprobs, `step ${n}`);
    own.push(next);
  }
  return flagged;
}

function lineOf(turns: ReadonlyMap<string, Turn>, last: Turn) {
  const line: Turn[] = [];
  for (let turn: Turn | undefined = last; turn !== undefined; turn = turns.get(turn.parent ?? '')) line.unshift(turn);
  const whole = assemble(line);
  assert.ok(typeof whole !== 'string', 'the trajectory is whole');
  return whole;
}

/** The first turn of a trajectory. */
const first = (session: number, ids: number[], kept = Infinity): Step => ({
  session,
  line: 0,
  more: 0,
  sampled: [ids, false],
  asText: false,
  kept,
  restarts: true,
});
/** A turn that continues a line of its session. */
const next = (session: number, line: number, asText: boolean): Step => ({ ...first(session, of), line, asText });

/** The client keeps a part of one turn, and the same text or tokens begin another turn of its session. */
const keptParts: [Step[], number][] = [
  [[first(3, of), first(3, [...often, ...of], 1), first(0, of), next(3, 2, true)], 1e9],
  [[first(3, apart), first(3, [...often, ...of], 1), next(3, 2, true)], 1e9],
  [[first(3, often), first(3, of), first(3, [...apart, ...of], 2), next(3, 3, true)], 1e9],
  // The tokens before the kept part have no place at which encoders certainly start anew.
  [
    [
      first(0, of),
      ...[1, 2, 3].map((line) => next(0, line, false)),
      { ...next(0, 4, false), sampled: [[...apart, ...of], false], kept: 2 },
      next(0, 5, true),
    ],
    1e9,
  ],
  [[first(3, [...apart, ...of], 1), first(3, [...apart, ...of]), next(3, 1, false)], 1e9],
];

test('sessions that ask and sample the same, in any order: each has its own tokens and logprobs, or is flagged', async () => {
  let flagged = 0;
  let steps = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 2, maxLength: 40 }),
      fc.constantFrom(1e9, 65_536),
      async (all, maxBytes) => {
        steps += all.length;
        flagged += await check(all, maxBytes);
      },
    ),
    { numRuns: 60, examples: keptParts },
  );
  // Most of them can be told apart.
  assert.ok(flagged > 0 && flagged < steps / 4, `${flagged} of ${steps}`);
});
