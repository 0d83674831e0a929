import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Random, seededRandom } from '../../src/kit/rng.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { MortalFleet } from './exact-fleet.ts';
import { eachTrajectory, exportedBySession, pick, snippets, trajectoryCount, words } from './random-trajectories.ts';

/** A trajectory as its client has it (text), and as it really happened (ids). */
interface Line {
  readonly text: string;
  readonly ids: readonly number[];
  readonly mask: readonly number[];
  readonly logprobs: readonly number[];
  /** The last turn ended with a token that is not in the text. */
  readonly isStopped: boolean;
  /** The engine died in the middle of the last turn: of what the router heard, its client may have missed the end. */
  readonly isCut: boolean;
  /** That, or a lost try, anywhere in it: an end of a turn that its client wrote may have been sampled, unseen. */
  readonly isTorn: boolean;
}

/** What a client got of an answer. */
interface Got {
  readonly text: string;
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  readonly isWhole: boolean;
}

interface Event {
  text: string;
  output_ids: number[];
  meta_info?: { output_token_logprobs: [number, number, null][]; finish_reason: unknown; completion_tokens: number };
}

test(`${trajectoryCount} trajectories: text gives back the ids that were sampled`, async (t) => {
  const fleet = await MortalFleet.start(['sglang', 'sglang', 'sglang']);
  t.after(() => fleet.close());
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: fleet.urls,
    tokenizerPath,
    plugin: ['radix-tree'],
    radixMaxCacheSize: 1_000_000,
    store: 'memory',
  });
  const seen = { turns: 0, aborts: 0, cuts: 0, retries: 0, branches: 0, drifted: 0 };
  const retrieved: { line: Line; tokens: number[]; mask: number[]; logprobs: number[] }[] = [];
  const leaves = new Map<string, Line[]>();

  const send = async (body: object, session: string, onBegun: () => void): Promise<Got | null> => {
    let text = '';
    try {
      const response = await fetch(`${router.url}/generate`, {
        method: 'POST',
        body: JSON.stringify(body),
        headers: { 'x-session-id': session },
      });
      if (response.status !== 200) return null;
      const decoder = new TextDecoder();
      for await (const part of response.body!) {
        if (text === '') onBegun();
        text += decoder.decode(part as Uint8Array, { stream: true });
      }
    } catch {
      // The engine died in the middle of it.
    }
    return text.startsWith('data: ') ? fromEvents(text) : fromWhole(text);
  };

  /** One turn: what was asked with behind a line, and what came of it. Tries again where nothing came. */
  const turn = async (random: Random, name: string, line: Line, more: string): Promise<Line> => {
    const text = line.text + more;
    for (let attempt = 0; ; attempt++) {
      assert.ok(attempt < 50, 'an engine is there, sooner or later');
      const rid = `${name}.${seen.turns++}`;
      const mishap = random();
      // In the middle of an answer that would be long.
      const dies = attempt === 0 && (mishap < 0.004 || (fleet.doomed.size === 0 && mishap > 0.1 && mishap < 0.7));
      const isStream = random() < 0.4 || dies;
      const length = dies
        ? { max_new_tokens: 80, ignore_eos: true }
        : { max_new_tokens: 1 + Math.floor(random() * 24) };
      const sampling_params = { ...length, temperature: 1 };
      if (dies) fleet.doomed.add(rid);
      const body = { text, rid, stream: isStream, return_logprob: true, sampling_params };
      const asked = send(body, name, () => {
        if (dies) fleet.replaceServing(rid);
      });
      if (mishap > 0.9) {
        seen.aborts++;
        setTimeout(() => fleet.abort(rid), random() * 12);
      }
      const got = await asked;
      const record = fleet.log.get(rid);
      if (got === null || got.ids.length === 0) {
        seen.retries++;
        await new Promise((resolve) => setTimeout(resolve, 5));
        continue;
      }
      if (!got.isWhole) seen.cuts++;
      const ids = idsBehind(line, more);
      // Of an engine that died there is no record; what was passed on is what it sampled.
      if (record !== undefined) {
        assert.deepEqual(record.inputIds, ids, text);
        assert.deepEqual(record.outputIds.slice(0, got.ids.length), got.ids);
        if (got.isWhole) assert.equal(record.outputIds.length, got.ids.length);
      } else assert.ok(!got.isWhole);
      if (encode(got.text).join() !== got.ids.filter((id) => id !== endOfTurn).join()) seen.drifted++;
      return lineOf(line, more, ids, got, attempt > 0);
    }
  };

  const trajectory = async (n: number): Promise<void> => {
    const random = seededRandom(n + 1);
    const name = `t${n}`;
    const lines: Line[] = [
      { text: '', ids: [], mask: [], logprobs: [], isStopped: false, isCut: false, isTorn: false },
    ];
    const ends = new Set<Line>();
    let line = lines[0]!;
    const system = `<|im_start|>system\n${pick(random, snippets)}<|im_end|>\n`;
    const asking = (role: string, what: string): string =>
      `<|im_start|>${role}\n${what} ${words(random)}<|im_end|>\n<|im_start|>assistant\n`;
    let more = system + asking('user', String(n));
    for (let turns = 2 + Math.floor(random() * 3); turns > 0; turns--) {
      const next = await turn(random, name, line, more);
      ends.delete(line);
      ends.add(next);
      // A turn that was nothing but an end has the text of the one before it: what goes on from there goes on from the newer.
      if (next.text === line.text) lines.splice(lines.indexOf(line), 1);
      lines.push(next);
      line = next;
      // Another branch from anywhere, now and then. No two ask the same: samples of one prompt may have the same text by chance,
      // and which of them is meant then is settled by time alone (`exact-prefix.test.ts`, `radix-tree.test.ts`).
      const isBranch = random() < 0.2;
      if (isBranch) {
        seen.branches++;
        line = pick(random, lines);
      }
      const what = isBranch ? `${n}.${turns}` : '';
      if (line.text === '') {
        more = system + asking('user', what || String(n));
        continue;
      }
      const closing = line.isStopped ? (random() < 0.8 ? '<|im_end|>' : '') : pick(random, ['<|im_end|>', '', '\n']);
      more = `${closing}\n${asking(pick(random, ['tool', 'user']), what)}`;
      // Behind an end of turn the engine would find the same end again: two lines that nobody can tell apart.
      if (!isBranch && !line.isStopped && random() < 0.1) more = '';
    }
    leaves.set(name, [...ends]);
    for (const each of ends) {
      const response = await fetch(`${router.url}/retrieve_from_text`, {
        method: 'POST',
        body: JSON.stringify({ text: each.text }),
      });
      assert.equal(response.status, 200, response.ok ? '' : await response.clone().text());
      const answer = (await response.json()) as { tokens: number[]; loss_mask: number[]; rollout_logp: number[] };
      retrieved.push({ line: each, tokens: answer.tokens, mask: answer.loss_mask, logprobs: answer.rollout_logp });
    }
  };

  await eachTrajectory(trajectory);
  await untilIdle(router);

  // Where a turn ended in one branch, the client may have written the same end in another: what was sampled is told of both.
  const sampledEnds = new Set<string>();
  for (const { inputIds, outputIds } of fleet.log.values())
    if (outputIds.at(-1) === endOfTurn) sampledEnds.add([...inputIds, ...outputIds].join());
  /** What is said of a line's tokens, as far as their client can know it. */
  const told = <T>({ ids, mask, isTorn }: Line, values: readonly T[]): T[] =>
    values
      .slice(0, ids.length)
      .filter(
        (_, i) => ids[i] !== endOfTurn || !(isTorn || (mask[i] === 0 && sampledEnds.has(ids.slice(0, i + 1).join()))),
      );

  for (const { line, tokens, mask, logprobs } of retrieved) {
    const length = line.isCut && tokens.at(-1) === endOfTurn ? line.ids.length : tokens.length;
    assert.ok(tokens.length - length <= 1);
    assert.deepEqual(tokens.slice(0, length), line.ids, line.text);
    assert.deepEqual(told(line, mask), told(line, line.mask));
    assert.deepEqual(told(line, logprobs), told(line, line.logprobs));
  }
  const bySession = await exportedBySession(router.url);
  for (const [session, ends] of leaves) {
    for (const line of ends) {
      const { text, ids, mask, logprobs, isCut } = line;
      const found = bySession
        .get(session)!
        .find(({ tokens }) => (isCut || tokens.length === ids.length) && ids.every((id, i) => id === tokens[i]));
      assert.ok(found, `${session} is exported: ${text}`);
      assert.deepEqual(told(line, found.loss_mask), told(line, mask));
      assert.deepEqual(told(line, found.rollout_log_probs), told(line, logprobs));
    }
  }
  // Every kind of mishap was among them. Of few trajectories no answer may have been without a token.
  const { retries, ...kinds } = { ...seen, deaths: fleet.deaths };
  for (const [kind, count] of Object.entries(kinds)) assert.ok(count > 0, kind);
  assert.ok(retries > 0 || trajectoryCount < 2_000);
  t.diagnostic(JSON.stringify({ ...seen, deaths: fleet.deaths, retrieved: retrieved.length }));
});

/** The ids of a line's text with more text behind it. What ended its last turn is one of them if the text goes on with it. */
function idsBehind({ ids, isStopped }: Line, more: string): number[] {
  if (!isStopped) return [...ids, ...encode(more)];
  const stop = '<|im_end|>';
  return more.startsWith(stop) ? [...ids, ...encode(more.slice(stop.length))] : [...ids.slice(0, -1), ...encode(more)];
}

function lineOf(line: Line, more: string, ids: readonly number[], got: Got, isRetried: boolean): Line {
  const kept = Math.min(
    line.ids.length,
    ids.length - (line.isStopped && !more.startsWith('<|im_end|>') ? encode(more).length : 0),
  );
  const asked = ids.length - kept;
  const zeros = Array.from({ length: asked }, () => 0);
  return {
    text: line.text + more + got.text,
    ids: [...ids, ...got.ids],
    mask: [...line.mask.slice(0, kept), ...zeros, ...got.ids.map(() => 1)],
    logprobs: [...line.logprobs.slice(0, kept), ...zeros, ...got.logprobs],
    isCut: !got.isWhole,
    isTorn: line.isTorn || isRetried || !got.isWhole,
    isStopped: got.ids.at(-1) === endOfTurn && !got.text.endsWith('<|im_end|>'),
  };
}

function fromWhole(text: string): Got | null {
  if (text === '') return null;
  let event: Event;
  try {
    event = JSON.parse(text) as Event;
  } catch {
    return null;
  }
  const { output_token_logprobs: triples } = event.meta_info!;
  return { text: event.text, ids: event.output_ids, logprobs: triples.map(([logprob]) => logprob), isWhole: true };
}

/** What a client has of a stream, whichever of SGLang's two kinds, and however far it came. */
function fromEvents(text: string): Got | null {
  const events = text
    .slice(0, text.lastIndexOf('\n\n') + 1)
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice(6)) as Event)
    .filter((event) => event.meta_info !== undefined);
  const last = events.at(-1);
  if (last === undefined) return null;
  const parts = last.output_ids.length === last.meta_info!.completion_tokens ? [last] : events;
  return {
    text: parts.map((part) => part.text).join(''),
    ids: parts.flatMap((part) => part.output_ids),
    logprobs: parts.flatMap((part) => part.meta_info!.output_token_logprobs.map(([logprob]) => logprob)),
    isWhole: last.meta_info!.finish_reason !== null,
  };
}
