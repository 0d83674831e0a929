import { setTimeout as delay } from 'node:timers/promises';
import { chatDialect } from '../exact/chat-dialect.ts';
import { readRows } from '../exact/journal.ts';
import { newAgent, post } from '../exact/post.ts';
import { TinkerClient, asked } from '../tinker/scene.ts';
import { type Verdict, type Whole, compare, missingOf } from './check.ts';
import type { SoakFleet } from './fleet.ts';

/** No request of this load takes so long, whatever fails. */
const HANG_MS = 90_000;
/** Until the record has what a client got: ids may come after the finish reason. */
const SETTLE_MS = 20_000;

/** What clients met. */
export class Counts {
  sessions = 0;
  requests = 0;
  /** No response, or an error of the router, while engines die. */
  refused = 0;
  truncated = 0;
  left = 0;
  exports = 0;
  exportedBytes = 0;
  swaps = 0;
  tinkerSamples = 0;
  tinkerFailed = 0;
  hangs = 0;
}

export interface SoakScene {
  readonly url: string;
  readonly fleet: SoakFleet;
  readonly verdict: Verdict;
  readonly counts: Counts;
  readonly random: () => number;
  readonly isOver: () => boolean;
}

const agent = newAgent();

/** Fails where it takes too long: a hang is found, not waited for. */
async function unhung<T>({ counts, verdict }: SoakScene, what: string, work: Promise<T>): Promise<T | null> {
  const ended = new AbortController();
  const late = delay(HANG_MS, null, { signal: ended.signal, ref: false }).catch(() => null);
  const result = await Promise.race([work, late]);
  const isLate = result === null && !ended.signal.aborted;
  ended.abort();
  if (isLate) {
    counts.hangs++;
    verdict.says(`${what} took more than ${HANG_MS / 1000} s`);
  }
  return result;
}

const json = { 'content-type': 'application/json' };

async function get(url: string): Promise<string> {
  const response = await fetch(url);
  const text = await response.text();
  // Only so many exports run at once.
  if (response.status === 503) return delay(500).then(() => get(url));
  if (response.status !== 200) throw new Error(`${url}: ${response.status} ${text}`);
  return text;
}

interface Answered {
  readonly text: string;
  readonly tokens: number;
  /** All of it came. */
  readonly isWhole: boolean;
}

/** One request of a session. null: nothing to continue came. */
async function ask(
  scene: SoakScene,
  name: string,
  path: string,
  body: Body,
  headers: object,
): Promise<Answered | null> {
  const { url, counts, random } = scene;
  counts.requests++;
  const leavesAfter = body.stream && random() < 0.12 ? Math.ceil(random() * 20) : Infinity;
  let events = 0;
  const sent = post(agent, url + path, body, { 'x-request-id': name, ...headers }, () =>
    ++events >= leavesAfter ? 'leave' : 'go on',
  );
  const reply = await unhung(scene, `${name} ${path}`, sent);
  if (reply === null) return null;
  if (reply.status !== 200) {
    counts.refused++;
    await delay(200);
    return null;
  }
  const isWhole = reply.isStream ? reply.parts.at(-1) === '[DONE]' : reply.isWhole;
  if (!isWhole) {
    if (leavesAfter < Infinity) counts.left++;
    else counts.truncated++;
  }
  if (!isWhole && !reply.isStream) return null;
  const { text } = path.includes('chat') ? readFirst(reply.parts) : readText(reply.parts);
  return { text, tokens: body.max_tokens, isWhole };
}

interface Body {
  readonly stream: boolean;
  readonly max_tokens: number;
}

interface Choice {
  readonly index?: number;
  readonly text?: string;
}

/** Of several choices the first one is continued. */
function readFirst(parts: readonly string[]): { text: string } {
  const first = parts.map((part) => {
    if (!part.startsWith('{')) return part;
    const event = JSON.parse(part) as { choices?: readonly Choice[] };
    return JSON.stringify({ ...event, choices: (event.choices ?? []).filter(({ index = 0 }) => index === 0) });
  });
  return chatDialect.read(first, true);
}

function readText(parts: readonly string[]): { text: string } {
  const events = parts.filter((part) => part.startsWith('{')).map((part) => JSON.parse(part) as { choices?: Choice[] });
  return { text: events.map(({ choices }) => choices?.[0]?.text ?? '').join('') };
}

/** The session's rows when all that clients got is on record, or after `SETTLE_MS`; compared, and deleted. */
async function settle(
  scene: SoakScene,
  session: string,
  names: readonly string[],
  whole: readonly Whole[],
): Promise<void> {
  const { url, fleet, verdict } = scene;
  const deadline = performance.now() + SETTLE_MS;
  for (;;) {
    const text = await unhung(
      scene,
      `export of ${session}`,
      get(`${url}/trajectories?format=jsonl&session=${session}`),
    );
    if (text === null) return;
    const rows = readRows(text);
    const missing = missingOf(rows, whole, (name) => fleet.of(name));
    if (missing > 0 && performance.now() < deadline) {
      await delay(100);
      continue;
    }
    if (missing > 0) {
      verdict.missing += missing;
      verdict.says(`session ${session}: of complete responses ${missing} choices are not on record`);
    }
    // What engines are killed for or clients leave is noted by the engine a moment later.
    await delay(50);
    compare(
      rows,
      names.flatMap((name) => fleet.of(name)),
      verdict,
    );
    break;
  }
  await removed(url, session);
  fleet.forget(names);
}

/** What was compared is deleted, so that memory that grows is that of the router. */
async function removed(url: string, session: string): Promise<void> {
  for (const what of ['sessions', 'trajectories']) {
    const answer = await fetch(`${url}/${what}/${session}`, { method: 'DELETE' });
    await answer.arrayBuffer();
  }
}

/** Chats of several turns, streamed or not, with one choice or three; some requests are sent twice. */
export async function chats(scene: SoakScene, client: string): Promise<void> {
  const { url, random, counts } = scene;
  for (let s = 0; !scene.isOver(); s++) {
    const begun = await fetch(`${url}/sessions`, { method: 'POST', headers: json, body: '{}' });
    if (begun.status !== 200) {
      await delay(200);
      continue;
    }
    counts.sessions++;
    const { session_id: session } = (await begun.json()) as { session_id: string };
    const kind = random() < 0.5 ? 'sglang' : 'vllm';
    const names: string[] = [];
    const whole: Whole[] = [];
    const messages: object[] = [{ role: 'user', content: `${client}.${s} begins` }];
    for (let turn = 0; turn < 4; turn++) {
      const n = random() < 0.4 ? 3 : 1;
      const body = {
        model: `sim-${kind}`,
        messages,
        n,
        max_tokens: 1 + Math.floor(random() * 60),
        temperature: 1,
        logprobs: true,
        stream: random() < 0.7,
      };
      let answer: Answered | null = null;
      for (let times = random() < 0.2 ? 2 : 1; times > 0; times--) {
        const name = `${client}.${s}.${names.length}`;
        names.push(name);
        const path = `/sessions/${session}/v1/chat/completions`;
        const own = await ask(scene, name, path, { ...body, ...(kind === 'sglang' ? { rid: name } : {}) }, {});
        if (own?.isWhole === true) whole.push({ name, choices: n });
        answer = own ?? answer;
      }
      if (answer === null) continue;
      messages.push({ role: 'assistant', content: answer.text }, { role: 'user', content: 'and then' });
    }
    await settle(scene, session, names, whole);
  }
}

/** Completions of token ids, which `--resume` continues on another engine when theirs dies. */
export async function completions(scene: SoakScene, client: string): Promise<void> {
  const { random, counts } = scene;
  for (let s = 0; !scene.isOver(); s++) {
    counts.sessions++;
    const session = `${client}.${s}`;
    const names: string[] = [];
    const whole: Whole[] = [];
    let prompt = `${session} begins`;
    for (let turn = 0; turn < 3; turn++) {
      const name = `${session}.${turn}`;
      names.push(name);
      const kind = s % 2 === 0 ? 'vllm' : 'sglang';
      // Long ones are running when engines die.
      const isLong = random() < 0.3;
      const body = {
        model: `sim-${kind}`,
        prompt,
        max_tokens: 20 + Math.floor(random() * (isLong ? 1_500 : 200)),
        ...(isLong ? { ignore_eos: true } : {}),
        temperature: 1,
        logprobs: 1,
        stream: random() < 0.7,
        ...(kind === 'sglang' ? { rid: name } : {}),
      };
      const answer = await ask(scene, name, '/v1/completions', body, { 'x-session-id': session });
      if (answer === null) continue;
      if (answer.isWhole) whole.push({ name, choices: 1 });
      prompt += `${answer.text} and then`;
    }
    await settle(scene, session, names, whole);
  }
}

/** Samples as tinker's SDK asks for them; each is one that an engine sampled. */
export async function tinker(scene: SoakScene): Promise<void> {
  const { url, fleet, verdict, counts, random } = scene;
  const client = new TinkerClient(url);
  const session = await client.samplingSession({ base_model: 'sim-vllm' });
  for (let i = 1; !scene.isOver(); i++) {
    const tokens = Array.from({ length: 12 }, () => 1_000 + Math.floor(random() * 4_000));
    const sampling_params = { max_tokens: 1 + Math.floor(random() * 40), temperature: 1, top_k: -1, top_p: 1, seed: i };
    const body = asked(session, i, {
      prompt: { chunks: [{ type: 'encoded_text', tokens }] },
      num_samples: 1 + Math.floor(random() * 4),
      sampling_params,
    });
    const result = await unhung(
      scene,
      `tinker sample ${i}`,
      client.sample(body).catch((error: unknown) => String(error)),
    );
    if (result === null) return;
    if (typeof result === 'string') {
      counts.tinkerFailed++;
      await delay(100);
      continue;
    }
    for (const sequence of result.sequences) {
      counts.tinkerSamples++;
      verdict.tinkerTokens += sequence.tokens.length;
      const isOne = fleet.after(tokens).some(
        ({ outputIds, logprobs }) =>
          outputIds.join() === sequence.tokens.join() &&
          // Tinker's results hold them in 32 bits.
          logprobs.every((logprob, at) => Math.fround(logprob) === Math.fround(sequence.logprobs[at]!)),
      );
      if (isOne) continue;
      verdict.wrongTokens += sequence.tokens.length;
      verdict.says(`tinker sample ${i}: no engine sampled ${sequence.tokens.join()}`);
    }
    fleet.forgetPrompt(tokens);
    await removed(url, `${session}:${i}`);
  }
}

/** Exports of all that is on record, while it is recorded. */
export async function exporter(scene: SoakScene, everyMs: number): Promise<void> {
  const { url, counts } = scene;
  for (let i = 0; !scene.isOver(); i++) {
    const format = i % 3 === 2 ? 'parquet' : 'jsonl';
    const whole = fetch(`${url}/trajectories?format=${format}`).then(async (response) => {
      const { byteLength } = await response.arrayBuffer();
      // Only so many exports run at once.
      if (response.status !== 200 && response.status !== 503)
        throw new Error(`an export was answered with ${response.status}`);
      return byteLength;
    });
    counts.exportedBytes += (await unhung(scene, 'an export', whole)) ?? 0;
    counts.exports++;
    await delay(everyMs);
  }
}

/** Weight swaps, one after the other. */
export async function swapper(scene: SoakScene, everyMs: number): Promise<void> {
  const { url, counts, verdict } = scene;
  for (let step = 1; !scene.isOver(); step++) {
    const order = { identity: `step-${step}`, transition: step % 4 === 0 ? 'sync' : 'async' };
    const answer = await fetch(`${url}/swap`, { method: 'POST', headers: json, body: JSON.stringify(order) });
    if (answer.status !== 202) verdict.says(`swap ${step}: ${answer.status} ${await answer.text()}`);
    else await answer.arrayBuffer();
    const isRunning = async (): Promise<boolean> => {
      const { deployments } = JSON.parse(await get(`${url}/swap`)) as { deployments: { running: string | null }[] };
      return deployments.some(({ running }) => running !== null);
    };
    const done = (async () => {
      while (await isRunning()) await delay(100);
      return true;
    })();
    if ((await unhung(scene, `swap ${step}`, done)) !== null) counts.swaps++;
    await delay(everyMs);
  }
}

/** Engines that die in the middle of their longest generation, one at a time, and come back two seconds later. */
export async function deaths({ fleet, isOver }: SoakScene, everyMs: number): Promise<void> {
  while (!isOver()) {
    await delay(everyMs);
    await fleet.die(fleet.longest, delay(2_000));
  }
}
