import type { SampleResult, TopToken } from './sample.ts';

/** The result for releases of the SDK that read JSON (0.16 and older). */
export function jsonOf({ sequences, promptLogprobs, topPrompt }: SampleResult): object {
  return {
    sequences: sequences.map(({ stopReason, tokens, logprobs, top }) => ({
      tokens: [...tokens],
      logprobs: numbers(logprobs),
      stop_reason: stopReason,
      ...(top === null ? {} : { topk_logprobs: top }),
    })),
    prompt_logprobs: promptLogprobs && numbers(promptLogprobs),
    topk_prompt_logprobs: topPrompt,
    type: 'sample',
  };
}

const numbers = (values: Float32Array): (number | null)[] =>
  Array.from(values, (value) => (Number.isNaN(value) ? null : value));

/** The same as the protobuf message `tinker_public.SampleResponse`. */
export function protobufOf({ sequences, promptLogprobs, topPrompt, cachedTokens }: SampleResult): Buffer {
  return Buffer.concat([
    ...sequences.flatMap(({ stopReason, tokens, logprobs, top }) =>
      field(1, [
        number(1, stopReason === 'stop' ? 0 : 1),
        ...field(2, [bytesOf(tokens)]),
        ...field(3, [bytesOf(logprobs)]),
        ...(top === null ? [] : field(4, topkOf(top))),
      ]),
    ),
    ...(promptLogprobs === null ? [] : field(2, [bytesOf(promptLogprobs)])),
    ...(topPrompt === null ? [] : field(3, topkOf(topPrompt))),
    ...(cachedTokens === null ? [] : [number(4, cachedTokens)]),
  ]);
}

/** Fills a row that has no token. */
const NO_LOGPROB = -99_999;

/** A matrix of a row for each place: rows that have nothing are absent for the client. */
function topkOf(rows: readonly (readonly TopToken[] | null)[]): Buffer[] {
  const k = Math.max(1, ...rows.map((row) => row?.length ?? 0));
  const ids = new Int32Array(rows.length * k);
  const logprobs = new Float32Array(rows.length * k).fill(NO_LOGPROB);
  for (const [r, row] of rows.entries()) {
    for (const [i, [id, logprob]] of (row ?? []).entries()) {
      ids[r * k + i] = id;
      logprobs[r * k + i] = logprob;
    }
  }
  return [...field(1, [bytesOf(ids)]), ...field(2, [bytesOf(logprobs)]), number(3, k), number(4, rows.length)];
}

/** A field with a length: a message, or bytes. */
function field(id: number, parts: readonly Buffer[]): Buffer[] {
  const bytes = parts.reduce((sum, { length }) => sum + length, 0);
  return [varints(id * 8 + 2, bytes), ...parts];
}

/** A field with a number, which is left out at 0, as proto3 has it. */
const number = (id: number, value: number): Buffer => (value === 0 ? NOTHING : varints(id * 8, value));
const NOTHING = Buffer.alloc(0);

function varints(...values: readonly number[]): Buffer {
  const bytes: number[] = [];
  for (let value of values) {
    for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
    bytes.push(value);
  }
  return Buffer.from(bytes);
}

/** Little-endian, as every machine that this runs on has it. */
const bytesOf = ({ buffer, byteOffset, byteLength }: Int32Array | Float32Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);
