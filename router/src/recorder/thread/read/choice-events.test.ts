import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import { letterOfByte } from '../../../kit/byte-letters.ts';
import { TokenPieces } from '../tokens/pieces.ts';
import { ChoiceEvents } from './choice-events.ts';
import { readChatAnswer, readEndedChoices } from './read-answer.ts';

/** Bytes are their own ids. */
const pieces = new TokenPieces({
  decoder: { type: 'ByteLevel' },
  model: { vocab: Object.fromEntries(letterOfByte.map((letter, byte) => [letter, byte])) },
});
const STOP = 10;

interface Event {
  readonly text: string;
  readonly isEnd: boolean;
}
const event = (value: object, isEnd = false): Event => ({ text: `data: ${JSON.stringify(value)}\n\n`, isEnd });

/** The events of a choice, as vLLM sends them (ids in each event) or SGLang (bytes of tokens, and a count). */
function eventsOf(index: number, ids: readonly number[], isVllm: boolean): Event[] {
  const choice = (delta: object, more: object, isEnd = false, count = 0): Event =>
    event({ choices: [{ index, delta, ...more }], usage: { completion_tokens: count } }, isEnd);
  const events = ids.map((id, i) => {
    const logprobs = { content: [{ logprob: -id / 8, bytes: [id] }] };
    const more = { logprobs, ...(isVllm ? { token_ids: [id] } : {}), finish_reason: null };
    return choice({ content: String.fromCharCode(id) }, more, false, i + 1);
  });
  const end = {
    finish_reason: 'stop',
    ...(isVllm ? { token_ids: [STOP], stop_reason: STOP } : { matched_stop: STOP }),
  };
  // Fields about the whole response may be in the event of any choice.
  const metadata = { weight_version: '7' };
  const head = event({ choices: [{ index, delta: { role: 'assistant' } }], prompt_token_ids: [1, 2], metadata });
  return [...(index === 0 ? [head] : []), ...events, choice({}, end, true, ids.length + 1)];
}

const stream = fc.record({
  isVllm: fc.boolean(),
  choices: fc.array(fc.array(fc.integer({ min: 97, max: 122 }), { maxLength: 5 }), { minLength: 1, maxLength: 4 }),
  order: fc.infiniteStream(fc.nat()),
  late: fc.infiniteStream(fc.integer({ min: 0, max: 2 })),
});

test('the choices that end in a part are read as if all of the stream were', () => {
  fc.assert(
    fc.property(stream, ({ isVllm, choices, order, late }) => {
      const left = choices.map((ids, index) => eventsOf(index, ids, isVllm));
      const all: Event[] = [];
      // The first event of all is that of the first choice.
      all.push(left[0]!.shift()!);
      while (left.some(({ length }) => length > 0)) {
        const open = left.filter(({ length }) => length > 0);
        all.push(open[order.next().value % open.length]!.shift()!);
      }
      const cached = { prompt_tokens_details: { cached_tokens: 3 } };
      all.push(event({ choices: [], sglext: { output_ids: choices.map((ids) => [...ids, STOP]) } }));
      all.push(event({ choices: [], sglext: { routed_experts: 'turnout-experts-0' }, usage: cached }));
      const events = new ChoiceEvents();
      const turns = new Set<number>();
      let soFar = '';
      let awaited = -1;
      for (const { text, isEnd } of all) {
        soFar += text;
        if (isEnd && awaited < 0) awaited = late.next().value;
        // A part is handed over with a choice's end, and perhaps with events after it.
        if (awaited-- !== 0) continue;
        const bytes = Buffer.from(soFar);
        const isTurn = (index: number): boolean => turns.has(index);
        const made = readEndedChoices(events.ended(bytes, isTurn), pieces).filter(({ isTorn }) => !isTorn);
        const whole = readChatAnswer(true, bytes, pieces, false).filter(
          ({ index, isTorn }) => !isTorn && !isTurn(index),
        );
        assert.deepEqual(
          made.toSorted((a, b) => a.index - b.index),
          whole.toSorted((a, b) => a.index - b.index),
        );
        for (const { index } of made) turns.add(index);
      }
    }),
  );
});
