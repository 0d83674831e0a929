import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { EventSplitter, joined } from '../kit/sse.ts';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { decode } from '../../../simulator/src/tokens/tokenizer.ts';
import { Generation } from './generation.ts';
import { dialectOf } from '../engines/dialects/dialects.ts';
import { Asked } from '../generation/asked.ts';
import { askedBody, continuedBody, factsOf } from './request.ts';
import { often } from '../../test/harness/often.ts';

/** An engine that fails after the last token can't tell these. */
const DETAILS = /,"prompt_tokens_details":(null|\{[^}]*\})(,"reasoning_tokens":0)?/g;
/** A generation in parts must be, byte for byte, what one engine sends; apart from these, which are of a request or of its time. */
const OF_REQUEST =
  /"(id|request_id)":"[^"]*"|"(created|cached_tokens|e2e_latency)":[\d.e-]+|"cached_tokens_details":(null|\{[^}]*\})/g;
const comparable = (text: string): string =>
  text.replaceAll(DETAILS, '').replaceAll(OF_REQUEST, (member) => member.slice(0, member.indexOf(':')));

const engines: SimEngine[] = [];
after(() => Promise.all(engines.map((engine) => engine.close())));

async function engineOf(options: Partial<SimOptions>): Promise<SimEngine> {
  const engine = await startSimEngine({ timeScale: 0, meanOutputTokens: 30, seed: 7, ...options });
  engines.push(engine);
  return engine;
}

async function ask({ url }: SimEngine, path: string, body: Buffer): Promise<Buffer> {
  const response = await fetch(url + path, { method: 'POST', body: new Uint8Array(body) });
  return Buffer.from(await response.arrayBuffer());
}

const eventsOf = (bytes: Buffer): Buffer[] => new EventSplitter<Buffer>(joined).push(bytes);

interface Case {
  readonly path: string;
  readonly body: object;
  /** Where it breaks off: after so many events of each part. */
  readonly cuts: readonly number[];
}

/** The engine that all generations of a test go to; a script is of the tokens that are still to come. */
interface Scripted {
  ids: readonly number[];
  holdAt: number;
}

async function scriptedEngine(options: Partial<SimOptions>, scripted: Scripted): Promise<SimEngine> {
  const script = () => ({
    ids: scripted.ids,
    holdAt: scripted.holdAt,
    onHeld: () => void engine.core.abort(() => true),
  });
  const engine = await engineOf({ ...options, script });
  return engine;
}

/** What a client gets of a generation whose engine fails after some events, again and again. */
async function inParts(
  engine: SimEngine,
  { path, body, cuts }: Case,
  habits = { isDelta: false },
  onSeam: (tokens: number) => void = () => {},
): Promise<string> {
  const dialect = dialectOf(path)!;
  const given = Buffer.from(JSON.stringify(body));
  const asked = Asked.read(dialect, given)!;
  const facts = factsOf(asked);
  assert.equal(facts.whyNot, null);
  const isVllm = engine.core.options.kind === 'vllm';
  const generation = new Generation({ asked: facts, isVllm, habits, isContinued: () => true, isRetried: () => true });
  const out: Buffer[] = [];
  let next = askedBody(asked, generation.showsStops);
  for (const cut of [...cuts, Infinity]) {
    const events = eventsOf(await ask(engine, path, next));
    for (const event of events.slice(0, cut)) {
      out.push(...generation.event(event));
      if (generation.isStopped) break;
    }
    if (generation.isFinished) {
      out.push(generation.tail());
      break;
    }
    generation.seam('default');
    // Of a slow client an engine joins events: of such an end `Resume` asks an engine, and does not continue within a character.
    fc.pre(!generation.isEndUnsure || !decode(generation.ids).endsWith('\ufffd'));
    onSeam(generation.ids.length);
    if (generation.ids.length > 0) next = continuedBody(asked, generation, generation.showsStops);
  }
  return Buffer.concat(out).toString();
}

const prompt = fc.array(fc.integer({ min: 264, max: 1000 }), { minLength: 1, maxLength: 20 });
const cuts = fc.array(fc.integer({ min: 0, max: 12 }), { minLength: 1, maxLength: 3 });
const sampling = fc.record({
  temperature: fc.constantFrom(0, 1),
  seed: fc.integer({ min: 0, max: 1000 }),
  limit: fc.integer({ min: 1, max: 40 }),
  least: fc.integer({ min: 0, max: 20 }),
});

async function agrees(engine: SimEngine, given: Case, habits?: { isDelta: boolean }): Promise<void> {
  const whole = (await ask(engine, given.path, Buffer.from(JSON.stringify(given.body)))).toString();
  assert.equal(comparable(await inParts(engine, given, habits)), comparable(whole));
}

for (const incrementalStreamingOutput of [false, true]) {
  const kind = incrementalStreamingOutput ? 'incremental' : 'cumulative';
  test(`/generate, ${kind}: parts are one stream`, async () => {
    const engine = await engineOf({ kind: 'sglang', incrementalStreamingOutput });
    const numbers = fc.integer({ min: 0, max: 2 });
    await fc.assert(
      fc.asyncProperty(prompt, cuts, sampling, fc.boolean(), numbers, async (ids, at, given, logprobs, top) => {
        const { temperature, seed, limit, least } = given;
        const params = { temperature, sampling_seed: seed, max_new_tokens: limit, min_new_tokens: least };
        const body = {
          input_ids: ids,
          stream: true,
          return_logprob: logprobs,
          top_logprobs_num: top,
          logprob_start_len: top - 1,
          sampling_params: params,
        };
        await agrees(engine, { path: '/generate', body, cuts: at }, { isDelta: incrementalStreamingOutput });
      }),
      { numRuns: often(20, 60) },
    );
  });
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`/v1/completions of ${kind}: parts are one stream`, async () => {
    const engine = await engineOf({ kind });
    const asksForIds = fc.boolean();
    await fc.assert(
      fc.asyncProperty(
        prompt,
        cuts,
        sampling,
        asksForIds,
        fc.boolean(),
        fc.boolean(),
        fc.boolean(),
        async (ids, at, given, returns, isText, hasUsage, echo) => {
          const { temperature, seed, limit, least } = given;
          const body = {
            prompt: isText ? decode(ids) : ids,
            stream: true,
            ...(hasUsage ? { stream_options: { include_usage: true } } : {}),
            ...(returns ? { return_token_ids: true } : {}),
            // vLLM returns either ids or the text of the prompt.
            ...(echo && (returns || kind === 'sglang') ? { echo } : {}),
            logprobs: 2,
            temperature,
            seed,
            max_tokens: limit,
            min_tokens: least,
          };
          await agrees(engine, { path: '/v1/completions', body, cuts: at });
        },
      ),
      { numRuns: often(20, 60) },
    );
  });

  test(`/v1/completions of ${kind}: a stop string over two parts ends it`, async () => {
    const engine = await engineOf({ kind, meanOutputTokens: 0 });
    await fc.assert(
      fc.asyncProperty(
        prompt,
        cuts,
        fc.integer({ min: 0, max: 99 }),
        fc.nat(30),
        fc.integer({ min: 2, max: 12 }),
        fc.boolean(),
        async (ids, at, seed, from, length, shows) => {
          const base = { prompt: ids, seed, max_tokens: 40, stream: true };
          const plain = JSON.parse(
            (await ask(engine, '/v1/completions', Buffer.from(JSON.stringify({ ...base, stream: false })))).toString(),
          ) as {
            choices: [{ text: string }];
          };
          const stop = plain.choices[0].text.slice(from, from + length);
          const shown = kind === 'vllm' ? { include_stop_str_in_output: shows } : { no_stop_trim: shows };
          await agrees(engine, {
            path: '/v1/completions',
            body: {
              ...base,
              // The second one is in no token: across parts it is not told which of two a single token completes first.
              stop: [stop, '§'],
              ...shown,
            },
            cuts: at,
          });
        },
      ),
      { numRuns: often(33, 100) },
    );
  });
}

test('/inference/v1/generate: parts are one stream', async () => {
  const engine = await engineOf({ kind: 'vllm' });
  await fc.assert(
    fc.asyncProperty(prompt, cuts, sampling, fc.boolean(), async (ids, at, given, returns) => {
      const { temperature, seed, limit, least } = given;
      const body = {
        token_ids: ids,
        stream: true,
        return_token_ids: returns,
        sampling_params: { temperature, seed, max_tokens: limit, min_tokens: least, logprobs: 1 },
      };
      await agrees(engine, { path: '/inference/v1/generate', body, cuts: at });
    }),
    { numRuns: often(20, 60) },
  );
});

/** Characters of one to four bytes, words, and bytes of no character. */
const characters = fc
  .array(
    fc.constantFrom(
      [300],
      [0xc3, 0xa9],
      [0xe4, 0xbd, 0xa0],
      [0xf0, 0x9f, 0x98, 0x80],
      [257],
      [0x80],
      [0xe4],
      [0xbd, 0xbd],
    ),
    { minLength: 1, maxLength: 12 },
  )
  .map((parts) => parts.flat());

for (const [kind, path] of [
  ['sglang', '/generate'],
  ['sglang', '/v1/completions'],
  ['vllm', '/v1/completions'],
] as const) {
  test(`${path} of ${kind}: no part ends within a character`, async () => {
    const scripted: Scripted = { ids: [], holdAt: 0 };
    const engine = await scriptedEngine({ kind, meanOutputTokens: 0 }, scripted);
    await fc.assert(
      fc.asyncProperty(prompt, cuts, characters, async (ids, at, sampled) => {
        scripted.ids = sampled;
        const limit = sampled.length + 2;
        const params = { seed: 1, max_tokens: limit, sampling_seed: 1, max_new_tokens: limit };
        const body = path === '/generate' ? { input_ids: ids, sampling_params: params } : { prompt: ids, ...params };
        const given = { path, body: { ...body, stream: true }, cuts: at };
        const whole = (await ask(engine, path, Buffer.from(JSON.stringify(given.body)))).toString();
        const onSeam = (tokens: number): void => {
          scripted.ids = sampled.slice(tokens);
        };
        const parts = await inParts(engine, given, { isDelta: false }, onSeam);
        // Events that end within a character are sent together with the next one.
        assert.deepEqual(lastOf(parts), lastOf(whole));
      }),
      { numRuns: often(66, 200) },
    );
  });
}

/** Text and ids of a stream, and how it ended. */
function lastOf(stream: string): object {
  const events = stream
    .split('\n\n')
    .flatMap((line) => (line.startsWith('data: {') ? [JSON.parse(line.slice(6)) as never] : []));
  const parts = events as {
    text?: string;
    output_ids?: number[];
    choices?: [{ text: string; finish_reason: string | null }];
  }[];
  if (parts.at(-1)?.choices === undefined) return { text: parts.at(-1)?.text, ids: parts.at(-1)?.output_ids };
  return {
    text: parts.map(({ choices }) => choices![0].text).join(''),
    finish: parts.at(-1)!.choices![0].finish_reason,
  };
}

for (const [kind, path] of [
  ['sglang', '/generate'],
  ['sglang', '/v1/completions'],
  ['vllm', '/v1/completions'],
  ['vllm', '/inference/v1/generate'],
] as const) {
  test(`${path} of ${kind}: a whole answer that was aborted twice is one answer`, async () => {
    const scripted: Scripted = { ids: [], holdAt: 0 };
    const engine = await scriptedEngine({ kind, meanOutputTokens: 0 }, scripted);
    await fc.assert(
      fc.asyncProperty(
        prompt,
        fc.tuple(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 0, max: 9 })),
        fc.boolean(),
        fc.boolean(),
        async (ids, aborts, returns, echo) => {
          const dialect = dialectOf(path)!;
          const sampling = { seed: 5, sampling_seed: 5, temperature: 1 };
          const limits = dialect.name === 'generate' ? { max_new_tokens: 24 } : { max_tokens: 24 };
          const body: object = {
            generate: { input_ids: ids, return_logprob: true, sampling_params: { ...sampling, ...limits } },
            completions: {
              prompt: ids,
              logprobs: 1,
              ...sampling,
              ...limits,
              ...(returns ? { return_token_ids: true } : {}),
              ...(echo && (returns || kind === 'sglang') ? { echo } : {}),
            },
            inference: {
              token_ids: ids,
              return_token_ids: returns,
              sampling_params: { ...sampling, ...limits, logprobs: 1 },
            },
          }[dialect.name];
          const given = Buffer.from(JSON.stringify(body));
          scripted.holdAt = 0;
          const whole = (await ask(engine, path, given)).toString();
          const asked = Asked.read(dialect, given)!;
          const parts = { asked: factsOf(asked), isVllm: kind === 'vllm', habits: { isDelta: false } };
          const generation = new Generation({ ...parts, isContinued: () => true, isRetried: () => true });
          let next = askedBody(asked, false);
          let made: Buffer | null = null;
          for (const holdAt of [...aborts, 0]) {
            scripted.holdAt = holdAt;
            made = generation.answer(await ask(engine, path, next));
            if (made !== null) break;
            generation.seam('default');
            next = continuedBody(asked, generation, false);
          }
          assert.equal(comparable(made!.toString()), comparable(whole));
        },
      ),
      { numRuns: often(13, 40) },
    );
  });
}

test('after more tokens without text than are kept a stream can not be continued, until their text comes', () => {
  const body = Buffer.from('{"prompt":[1],"stream":true,"max_tokens":99,"return_token_ids":true}');
  const asked = factsOf(Asked.read(dialectOf('/v1/completions')!, body)!);
  const parts = { asked, isVllm: true, habits: { isDelta: true }, isContinued: () => true, isRetried: () => true };
  const generation = new Generation(parts);
  const event = (text: string): Buffer[] =>
    generation.event(Buffer.from(`data: {"choices":[{"index":0,"text":"${text}","token_ids":[128]}]}\n\n`));
  for (let i = 0; i < 16; i++) assert.deepEqual([event(''), generation.isWithinText], [[], false]);
  assert.deepEqual([event('').length, generation.isWithinText], [1, true]);
  assert.deepEqual([event('\ufffdx').length, generation.isWithinText], [17, false]);
});

test('a generation that keeps nothing ends without its usage', () => {
  const options = '"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true';
  const asked = factsOf(Asked.read(dialectOf('/v1/completions')!, Buffer.from(`{"prompt":[1],${options}}`))!);
  const parts = { asked, isVllm: true, habits: { isDelta: true }, isContinued: () => true, isRetried: () => true };
  const generation = new Generation(parts);
  generation.forget();
  const choice = '{"index":0,"text":"a","token_ids":[128],"finish_reason":"length"}';
  generation.event(Buffer.from(`data: {"choices":[${choice}]}\n\n`));
  assert.deepEqual([generation.isFinished, generation.tail().toString()], [true, 'data: [DONE]\n\n']);
});

test('an event is read also where a comment or the name of the event comes first', () => {
  const body = { prompt: [1, 2], stream: true, max_tokens: 8 };
  const asked = Asked.read(dialectOf('/v1/completions')!, Buffer.from(JSON.stringify(body)))!;
  for (const line of [': keep-alive', 'event: message']) {
    const generation = new Generation({
      asked: factsOf(asked),
      isVllm: true,
      habits: { isDelta: false },
      isContinued: () => true,
      isRetried: () => true,
    });
    const event = (ids: string): string =>
      `${line}\ndata: {"choices":[{"index":0,"text":" a","token_ids":${ids},"finish_reason":null}]}\n\n`;
    const out = Buffer.concat(generation.event(Buffer.from(event('[7]')))).toString();
    assert.equal(out, event('null'), 'ids that only the router asked for are hidden');
    assert.deepEqual(generation.sampled, [7]);
  }
});
