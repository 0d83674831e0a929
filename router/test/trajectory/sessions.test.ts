import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

/** One of three tool calls, then an answer that no other session has. */
const calls = ['weather', 'search', 'call often'].map((name) => [
  ...encode(`<tool_call>${name}</tool_call>`),
  endOfTurn,
]);

interface Sampled {
  readonly prompt: readonly number[];
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  readonly version: string;
}

/** An engine whose answers all have logprobs of their own, and the version of the moment. @returns what it sampled, by session */
async function engine(t: TestContext, kind: 'generate' | 'completions') {
  const log = new Map<string, Sampled[]>();
  let sampled = 0;
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part: Buffer) => (body += part.toString()));
    request.on('end', () => {
      // It names the weights in its answers, and answers no question about them.
      if (request.method !== 'POST') {
        response.statusCode = 404;
        response.end();
        return;
      }
      const session = request.headers['x-log'] as string;
      const turns = log.get(session) ?? [];
      log.set(session, turns);
      const asked = JSON.parse(body) as { input_ids?: number[]; prompt?: number[] };
      const prompt = asked.input_ids ?? asked.prompt ?? [];
      const number = Number(session.split('.')[1]);
      const ids = turns.length === 0 ? calls[number % calls.length]! : [...encode(`done ${session}`), endOfTurn];
      const logprobs = ids.map(() => -1 - sampled++ / 1e5);
      const version = `v${Math.floor(sampled / 700)}`;
      turns.push({ prompt, ids, logprobs, version });
      const text = decode(ids.slice(0, -1));
      const usage = { prompt_tokens: prompt.length, completion_tokens: ids.length };
      const named = { weight_version: version, weight_versions: [{ version, start: 0, end: ids.length }] };
      const generated = {
        text,
        output_ids: ids,
        meta_info: {
          ...usage,
          finish_reason: { type: 'stop' },
          ...named,
          output_token_logprobs: ids.map((id, i) => [logprobs[i], id, null]),
        },
      };
      const choice = { index: 0, text, token_ids: ids, finish_reason: 'stop', logprobs: { token_logprobs: logprobs } };
      const completion = { choices: [choice], usage, metadata: named };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(kind === 'generate' ? generated : completion));
    });
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${(server.address() as { port: number }).port}`, log };
}

interface Row {
  session: string;
  tokens: number[];
  loss_mask: number[];
  rollout_log_probs: number[];
  versions: { version: string; from: number; to: number }[];
  ambiguous: boolean;
  turns: { id: string; ambiguous: boolean }[];
}

const GROUPS = 20;
const SAMPLES = 8;

for (const [kind, asks] of [
  ['generate', 'text'],
  ['generate', 'ids'],
  ['completions', 'text'],
  ['completions', 'ids'],
] as const) {
  test(`${GROUPS} groups of ${SAMPLES} samples with equal first turns: each has its own (${kind}, ${asks})`, async (t) => {
    const { url, log } = await engine(t, kind);
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const plugin = ['radix-tree:{"verify":false,"completions":true}'];
    const router = await startTestRouter(t, { workerUrls: [url], tokenizerPath, plugin, policy: 'round_robin' });
    const path = kind === 'generate' ? '/generate' : '/v1/completions';
    const ask = async (session: string, text: string, ids: readonly number[]): Promise<string> => {
      const prompt = asks === 'text' ? text : ids;
      const body =
        kind === 'completions'
          ? { model: 'm', prompt, logprobs: 1 }
          : { ...(asks === 'text' ? { text } : { input_ids: ids }), return_logprob: true };
      const headers = { 'x-session-id': session, 'x-log': session };
      const response = await fetch(router.url + path, { method: 'POST', body: JSON.stringify(body), headers });
      assert.equal(response.status, 200);
      const answer = (await response.json()) as { text?: string; choices?: { text: string }[] };
      return answer.text ?? answer.choices![0]!.text;
    };
    const lines = Array.from({ length: GROUPS * SAMPLES }, (_, n) => {
      const group = Math.floor(n / SAMPLES);
      const text = `<|im_start|>user\nWhat is ${group}?<|im_end|>\n<|im_start|>assistant\n`;
      return { session: `g${group}.${n % SAMPLES}`, text, ids: encode(text) };
    });
    for (const more of ['', '<|im_end|>\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n']) {
      await Promise.all(
        lines.map(async (line) => {
          line.text += more;
          line.ids.push(...encode(more).slice(more === '' ? 0 : 1));
          line.text += await ask(line.session, line.text, line.ids);
          line.ids.push(...log.get(line.session)!.at(-1)!.ids);
        }),
      );
    }
    await untilIdle(router);
    const rows = (await (await fetch(`${router.url}/trajectories?format=jsonl`)).text())
      .split('\n')
      .filter((json) => json !== '')
      .map((json) => JSON.parse(json) as Row);
    assert.equal(rows.length, GROUPS * SAMPLES);
    assert.equal(new Set(rows.map(({ session }) => session)).size, rows.length);
    for (const [n, row] of rows.entries()) {
      const [first, second] = log.get(row.session)! as [Sampled, Sampled];
      const given = second.prompt.slice(first.prompt.length + first.ids.length);
      const zeros = (list: readonly number[]): number[] => list.map(() => 0);
      assert.deepEqual(row.tokens, [...first.prompt, ...first.ids, ...given, ...second.ids]);
      const logprobs = [...zeros(first.prompt), ...first.logprobs, ...zeros(given), ...second.logprobs];
      assert.deepEqual(row.rollout_log_probs, logprobs);
      assert.deepEqual(
        row.loss_mask,
        logprobs.map((logprob) => (logprob === 0 ? 0 : 1)),
      );
      assert.deepEqual(
        row.versions.map(({ version }) => version),
        [first.version, second.version],
      );
      assert.deepEqual([row.ambiguous, ...row.turns.map(({ ambiguous }) => ambiguous)], [false, false, false]);
      const { text } = lines.find(({ session }) => session === row.session)!;
      // A session is named in one of three ways.
      const [body, headers] = [
        [{ session: row.session }, {}],
        [{ session_id: row.session }, {}],
        [{}, { 'x-session-id': row.session }],
      ][n % 3]!;
      const retrieved = await fetch(`${router.url}/retrieve_from_text`, {
        method: 'POST',
        headers: headers as Record<string, string>,
        body: JSON.stringify({ text, ...body }),
      });
      const back = (await retrieved.json()) as { tokens: number[]; rollout_logp: number[]; loss_mask: number[] };
      assert.deepEqual([back.tokens, back.rollout_logp, back.loss_mask], [row.tokens, logprobs, row.loss_mask]);
    }
    const wrong = { method: 'POST', body: JSON.stringify({ text: 'a', session: 5 }) };
    assert.equal((await fetch(`${router.url}/retrieve_from_text`, wrong)).status, 400);
  });
}

test('a router that starts on the file of one before it goes on exactly, and knows the texts of turns in it', async (t) => {
  const { url, log } = await engine(t, 'generate');
  const tokenizerPath = temporaryFolder(t);
  const dataDir = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const plugin = ['radix-tree:{"verify":false}'];
  const start = () => startTestRouter(t, { workerUrls: [url], tokenizerPath, plugin, dataDir });
  const ask = async (router: { url: string }, session: string, text: string): Promise<string> => {
    const response = await fetch(`${router.url}/generate`, {
      method: 'POST',
      body: JSON.stringify({ text, return_logprob: true }),
      headers: { 'x-session-id': session, 'x-log': session },
    });
    assert.equal(response.status, 200);
    return ((await response.json()) as { text: string }).text;
  };
  const prompt = '<|im_start|>user\nWhat is often?<|im_end|>\n<|im_start|>assistant\n';
  const tool = '<|im_end|>\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n';
  const names = Array.from({ length: 12 }, (_, n) => `g.${n}`);
  const before = await start();
  const texts = new Map<string, string>();
  for (const name of names) texts.set(name, prompt + (await ask(before, name, prompt)));
  await before.close();

  const after = await start();
  const retrieve = async (text: string, more: object) => {
    const response = await fetch(`${after.url}/retrieve_from_text`, {
      method: 'POST',
      body: JSON.stringify({ text, ...more }),
    });
    return (await response.json()) as {
      tokens: number[];
      loss_mask: number[];
      rollout_logp: number[];
      ambiguous?: true;
    };
  };
  // Before anything else: it waits until the trees are filled.
  const first = await retrieve(texts.get('g.0')!, {});
  assert.deepEqual(first.tokens, [...encode(prompt), ...calls[0]!]);
  assert.equal(first.loss_mask.filter((bit) => bit === 1).length, calls[0]!.length);
  assert.equal(first.ambiguous, true, 'four sessions sampled it');
  for (const name of names) {
    const [turn] = log.get(name)!;
    const { tokens, loss_mask: mask, rollout_logp: logprobs } = await retrieve(texts.get(name)!, { session: name });
    const given = encode(prompt).map(() => 0);
    assert.deepEqual(tokens, [...encode(prompt), ...turn!.ids]);
    assert.deepEqual(mask, [...given, ...turn!.ids.map(() => 1)]);
    assert.deepEqual(logprobs, [...given, ...turn!.logprobs]);
    await ask(after, name, texts.get(name)! + tool);
    assert.deepEqual(log.get(name)![1]!.prompt, [...encode(prompt), ...turn!.ids, ...encode(tool).slice(1)]);
  }
  await untilIdle(after);
  const rows = (await (await fetch(`${after.url}/trajectories?format=jsonl`)).text()).trim().split('\n');
  assert.equal(rows.length, names.length);
  for (const json of rows) {
    const { session, rollout_log_probs: logprobs } = JSON.parse(json) as Row;
    const sampled = log.get(session)!.flatMap((turn) => turn.logprobs);
    assert.deepEqual(
      logprobs.filter((logprob) => logprob !== 0),
      sampled,
    );
  }
  const stats = (await (await fetch(`${after.url}/radix_tree/stats`)).json()) as Record<string, number>;
  assert.deepEqual([stats['restored_turns'], stats['lost_turns']], [names.length, 0]);
});
