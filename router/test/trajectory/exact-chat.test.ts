import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Random, seededRandom } from '../../src/kit/rng.ts';
import { readMessages, renderChat } from '../../../simulator/src/tokens/chat-template.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode, endOfTurn, isSpecial } from '../../../simulator/src/tokens/tokenizer.ts';
import type { ChatMessage, ChatRecord } from '../harness/chat-scene.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { readSamples } from '../harness/safetensors.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { type Got, askChat } from './chat-client.ts';
import { MortalFleet } from './exact-fleet.ts';
import {
  type Exported,
  eachTrajectory,
  exportedBySession,
  pick,
  trajectoryCount,
  words,
} from './random-trajectories.ts';

/** null: its client doesn't know. 'unknown': the engine did not tell. */
type Known = number | null | 'unknown';

/** A chat as its client has it (messages), and as it really happened: what the engine was given and sampled. */
interface Line {
  readonly messages: readonly ChatMessage[];
  readonly ids: readonly number[];
  readonly mask: readonly number[];
  readonly logprobs: readonly Known[];
  readonly isStopped: boolean;
  /** Another one begins with all of it. */
  isContinued: boolean;
}

const START: Line = { messages: [], ids: [], mask: [], logprobs: [], isStopped: false, isContinued: true };

/** A session, and what its client knows of it. */
interface Chat {
  readonly session: string;
  readonly name: string;
  readonly random: Random;
  readonly lines: Line[];
  /** Calls whose answers broke off, and what came of them. */
  readonly torn: { readonly call: string; readonly content: string }[];
  calls: number;
}

test(`${trajectoryCount} chats: engines get the ids that were sampled before, and all of them are kept`, async (t) => {
  const fleet = await MortalFleet.start(['sglang', 'vllm', 'sglang']);
  t.after(() => fleet.close());
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: fleet.urls,
    tokenizerPath,
    plugin: ['chat-sessions'],
    disableHealthCheck: false,
    // Machines under load: the first request waits for a thread that starts.
    pluginTimeoutMs: 60_000,
    store: 'memory',
    storeMemoryBytes: 1_073_741_824,
  });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  const seen = {
    turns: 0,
    streams: 0,
    aborts: 0,
    cuts: 0,
    left: 0,
    lost: 0,
    repeated: 0,
    branches: 0,
    rendered: 0,
  };

  let drifted = 0;
  let kept = 0;

  const post = (path: string): Promise<Response> => fetch(router.url + path, { method: 'POST', body: '{}' });

  /** One turn: what a client says behind a line, and what came of it. Tries again where nothing came, or it got lost. */
  const turn = async (chat: Chat, line: Line, said: readonly ChatMessage[]): Promise<Line> => {
    const { random, session, name } = chat;
    const messages = [...line.messages, ...said];
    for (let attempt = 0; ; attempt++) {
      assert.ok(attempt < 50, 'an engine is there, sooner or later');
      const call = `${name}.${chat.calls++}`;
      seen.turns++;
      const mishap = random();
      const dies = attempt === 0 && (mishap < 0.004 || (fleet.doomed.size === 0 && mishap > 0.1 && mishap < 0.7));
      const leaves = attempt === 0 && mishap > 0.004 && mishap < 0.03;
      const isStream = random() < 0.5 || dies || leaves;
      seen.streams += isStream ? 1 : 0;
      // What is to be torn in the middle would be long.
      const length =
        dies || leaves ? { max_tokens: 80, ignore_eos: true } : { max_tokens: 1 + Math.floor(random() * 24) };
      const body = {
        model: 'sim',
        messages: messages.map((message) => respelled(random, message)),
        ...length,
        temperature: 1,
        rid: call,
        stream: isStream,
        ...(random() < 0.7 ? { logprobs: true } : {}),
        ...(random() < 0.15 ? { tools: [{ type: 'function', function: { name: 'search', parameters: {} } }] } : {}),
      };
      if (dies) fleet.doomed.add(call);
      const stop = new AbortController();
      const onBegun = (): void => {
        if (dies) fleet.replaceServing(call);
        if (leaves) setTimeout(() => stop.abort(), random() * 20);
      };
      const ask = () =>
        askChat(
          `${router.url}/sessions/${session}/v1/chat/completions`,
          body,
          { 'x-request-id': call },
          onBegun,
          stop.signal,
        );
      const asked = ask();
      const aborting = mishap > 0.9 ? setInterval(() => fleet.abort(call), 1 + random() * 10) : undefined;
      const got = await asked;
      clearInterval(aborting);
      // vLLM ends a stream that is aborted before its first token without a reason: no turn.
      if (got === null || !got.isWhole || got.finishReason === '') {
        if (leaves) seen.left++;
        else if (got?.isWhole === false) seen.cuts++;
        chat.torn.push({ call, content: got?.message.content ?? '' });
        continue;
      }
      const made = lineOf(line, messages, got, call);
      chat.lines.push(made);
      if (mishap > 0.8) return made;
      if (mishap > 0.77) {
        // The answer got lost, and its client asks again under the same name.
        const before = fleet.log.get(call);
        assert.equal((await ask())?.text, got.text);
        assert.equal(fleet.log.get(call), before, 'no engine heard of it');
        seen.repeated++;
        return made;
      }
      if (mishap < 0.75) return made;
      // It asks again under another name: a sample of its own.
      seen.lost++;
    }
  };

  const lineOf = (line: Line, messages: readonly ChatMessage[], got: Got, call: string): Line => {
    const { requestId, inputIds, outputIds, finish } = fleet.log.get(call)!;
    if (finish.type === 'abort') seen.aborts++;
    assert.equal(got.finishReason, finish.type);
    assert.equal(got.message.content, contentOf(outputIds), 'its client has what was sampled');
    const isRendered = requestId.startsWith('chatcmpl-');
    assert.deepEqual(inputIds, isRendered ? rendered(messages) : behind(line, messages), decode(inputIds));
    let kept = 0;
    while (kept < line.ids.length && line.ids[kept] === inputIds[kept]) kept++;
    if (isRendered) seen.rendered++;
    if (kept < line.ids.length) drifted++;
    // A stop token that nothing follows is no reason to keep a trajectory apart.
    if (kept >= line.ids.length - (line.isStopped ? 1 : 0)) line.isContinued = true;
    const zeros = Array.from({ length: inputIds.length - kept }, () => 0);
    return {
      messages: [...messages, got.message],
      ids: [...inputIds, ...outputIds],
      mask: [...line.mask.slice(0, kept), ...zeros, ...outputIds.map(() => 1)],
      logprobs: [...line.logprobs.slice(0, kept), ...zeros, ...logprobsOf(got, outputIds, requestId)],
      isStopped: finish.type === 'stop',
      isContinued: false,
    };
  };

  const chats: Chat[] = [];
  await eachTrajectory(async (n) => {
    const begun = (await (await post('/sessions')).json()) as { session_id: string };
    const random = seededRandom(n + 1);
    const chat: Chat = { session: begun.session_id, name: `t${n}`, random, lines: [], torn: [], calls: 0 };
    chats.push(chat);
    const system = { role: 'system', content: pick(random, ['You are of ten é.', words(random)]) };
    const known: Line[] = [];
    let line = START;
    for (let turns = 2 + Math.floor(random() * 3); turns > 0; turns--) {
      // Another branch from anywhere, now and then; no two ask the same.
      if (known.length > 0 && random() < 0.25) {
        seen.branches++;
        line = pick(random, [START, ...known]);
      }
      const content = `${n}.${turns} ${words(random)}`;
      const said = { role: line === START ? 'user' : pick(random, ['user', 'tool']), content };
      line = await turn(chat, line, line === START && random() < 0.5 ? [system, said] : [said]);
      known.push(line);
    }
  });
  await untilIdle(router);

  // The record of a session waits for its turns.
  for (const { session, lines, torn } of chats) {
    const { records, metadata } = (await (await fetch(`${router.url}/sessions/${session}`)).json()) as ChatRecord;
    assert.ok(records.length >= lines.length && records.length <= lines.length + torn.length);
    const { accumulated_token_ids: newest } = metadata;
    if (torn.length === 0) assert.deepEqual(newest, lines.at(-1)!.ids);
  }
  const bySession = await exportedBySession(router.url);
  let compared = 0;
  for (const { session, lines, torn } of chats) {
    const left = [...(bySession.get(session) ?? [])];
    for (const { ids, mask, logprobs, isStopped } of lines.filter(({ isContinued }) => !isContinued)) {
      const exact = left.findIndex(({ tokens }) => String(tokens) === String(ids));
      // A call that was torn may have gone on from it, and the one in its place in another way (drift).
      const shared = ids.slice(0, ids.length - (isStopped ? 1 : 0));
      const isGoneOnFrom = ({ tokens }: Exported): boolean => shared.every((id, i) => id === tokens[i]);
      const torns = exact < 0 && torn.length > 0 ? left.find(isGoneOnFrom) : undefined;
      assert.ok(exact >= 0 || torns !== undefined, `${session} is exported: ${decode(ids)}`);
      const found = torns ?? (left.splice(exact, 1) as [Exported])[0];
      const length = torns === undefined ? ids.length : shared.length;
      assert.deepEqual(found.loss_mask.slice(0, length), mask.slice(0, length));
      assert.equal(found.rollout_log_probs.length, found.tokens.length);
      for (const [i, logprob] of found.rollout_log_probs.slice(0, length).entries()) {
        const own = logprobs[i]!;
        if (own === null) assert.ok(logprob === null || logprob <= 0);
        else if (own === 'unknown') assert.equal(logprob, null);
        else assert.equal(logprob, own, decode(ids.slice(i, i + 1)));
      }
      compared++;
    }
    // All else was sampled too, by calls whose clients saw no end; and what they saw is there.
    for (const { call, content } of torn) {
      const { inputIds, outputIds } = fleet.log.get(call) ?? fleet.torn.get(call) ?? { inputIds: [], outputIds: [] };
      const all = [...inputIds, ...outputIds];
      const at = left.findIndex(
        ({ tokens }) => tokens.length > inputIds.length && tokens.every((id, i) => id === all[i]),
      );
      assert.ok(at >= 0 || content === '', `${session} has what came of ${call}: ${content}`);
      if (at < 0) continue;
      const [found] = left.splice(at, 1) as [Exported];
      assert.ok(contentOf(found.tokens.slice(inputIds.length)).startsWith(content));
      kept++;
    }
    assert.deepEqual(left, [], `${session} was sampled`);
  }
  for (const { session } of chats.filter((_, i) => i % 40 === 0)) {
    const samples = readSamples(Buffer.from(await (await post(`/sessions/${session}/samples`)).arrayBuffer()));
    assert.deepEqual(
      samples.map(({ tokens }) => tokens),
      bySession.get(session)!.map(({ tokens }) => tokens),
    );
  }
  // Every kind of mishap was among them.
  for (const [kind, count] of Object.entries({ ...seen, deaths: fleet.deaths })) assert.ok(count > 0, kind);
  t.diagnostic(JSON.stringify({ ...seen, drifted, kept, deaths: fleet.deaths, compared }));
});

/** What a client gets as text of sampled ids. */
const contentOf = (ids: readonly number[]): string => decode(ids, false);

/** What a client knows of logprobs: SGLang's streams leave out those of tokens without text. */
function logprobsOf({ logprobs, isStream }: Got, ids: readonly number[], requestId: string): Known[] {
  if (logprobs === null) return ids.map(() => null);
  const isLossy = isStream && !requestId.includes('cmpl-');
  let next = 0;
  const known = ids.map((id): Known =>
    isLossy && isSpecial(id) ? 'unknown' : (logprobs[next++] ?? assert.fail('one is missing')),
  );
  assert.equal(next, logprobs.length);
  return known;
}

/** The prompt of a chat that goes on behind a line. */
function behind(line: Line, messages: readonly ChatMessage[]): number[] {
  const closing = line.ids.length === 0 ? '' : line.ids.at(-1) === endOfTurn ? '\n' : '<|im_end|>\n';
  const said = messages
    .slice(line.messages.length)
    .map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`);
  return [...line.ids, ...encode(`${closing}${said.join('')}<|im_start|>assistant\n`)];
}

/** The same as an engine renders it by itself. */
const rendered = (messages: readonly ChatMessage[]): number[] => {
  const read = readMessages(messages);
  assert.ok(typeof read !== 'string');
  return encode(renderChat(read, { addGenerationPrompt: true, continueFinalMessage: false }));
};

/** As a client's library may send it back. */
function respelled(random: Random, message: ChatMessage): ChatMessage {
  if (message.role !== 'assistant' || random() > 0.1) return message;
  return pick(random, [
    { ...message, refusal: null },
    { ...message, content: [{ type: 'text', text: message.content }] as never },
  ]);
}
