import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../src/sim/tokenizer-files.ts';
import { decode, encode, endOfTurn } from '../../src/sim/tokenizer.ts';
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
      const generated = {
        text,
        output_ids: ids,
        meta_info: {
          ...usage,
          finish_reason: { type: 'stop' },
          weight_version: version,
          output_token_logprobs: ids.map((id, i) => [logprobs[i], id, null]),
        },
      };
      const choice = { index: 0, text, token_ids: ids, finish_reason: 'stop', logprobs: { token_logprobs: logprobs } };
      const completion = { choices: [choice], usage, metadata: { weight_version: version } };
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
    for (const row of rows) {
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
      for (const [body, headers] of [
        [{ session: row.session }, {}],
        [{ session_id: row.session }, {}],
        [{}, { 'x-session-id': row.session }],
      ] as const) {
        const retrieved = await fetch(`${router.url}/retrieve_from_text`, {
          method: 'POST',
          headers,
          body: JSON.stringify({ text, ...body }),
        });
        const back = (await retrieved.json()) as { tokens: number[]; rollout_logp: number[]; loss_mask: number[] };
        assert.deepEqual([back.tokens, back.rollout_logp, back.loss_mask], [row.tokens, logprobs, row.loss_mask]);
      }
    }
    const wrong = { method: 'POST', body: JSON.stringify({ text: 'a', session: 5 }) };
    assert.equal((await fetch(`${router.url}/retrieve_from_text`, wrong)).status, 400);
  });
}
