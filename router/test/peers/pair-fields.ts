import { deepEqual, ok } from 'node:assert/strict';
import type { Ask } from './asks.ts';
import { differences } from './differences.ts';
import { Digits, readExact, written } from './exact-json.ts';
import type { Recorded } from './recorder.ts';

/** What the two engines of a pair were asked, taken apart. */
export interface PairReading {
  /** What makes them a pair, with words in place of what is drawn. */
  readonly fields: readonly string[];
  /** What else is not the client's, for each of them. */
  readonly rest: readonly (readonly string[])[];
}

/** @returns the reading; throws where they are no pair. */
export type ReadPair = (ask: Ask, prefill: Recorded, decode: Recorded) => PairReading;

const VALUE = String.raw`(?:\[[^\]]*\]|"[^"]*"|null|\d+)`;
const BOOTSTRAP = new RegExp(
  `,("bootstrap_host":${VALUE},"bootstrap_port":${VALUE},"bootstrap_room":${VALUE})(?=\\s*\\}\\s*$)`,
);

/** SGLang's: the same three fields for both, at the end of the body; lists of them for batches. */
export const readBootstrap: ReadPair = (ask, prefill, decode) => {
  const [, fields = ''] = BOOTSTRAP.exec(prefill.body) ?? [];
  ok(fields !== '', `no bootstrap fields in ${prefill.body}`);
  ok(decode.body.includes(fields), `other fields for decode: ${decode.body} than ${fields}`);
  const read = readExact(`{${fields}}`) as { bootstrap_room: unknown };
  const { bootstrap_room: room } = read;
  const rooms = Array.isArray(room) ? room : [room];
  for (const each of rooms) {
    ok(each instanceof Digits && /^\d+$/.test(each.text) && BigInt(each.text) < 2n ** 63n, `not a room: ${fields}`);
  }
  ok(new Set(rooms.map((each: Digits) => each.text)).size === rooms.length, `a room for two: ${fields}`);
  const drawn = { ...read, bootstrap_room: Array.isArray(room) ? rooms.map(() => 'a room') : 'a room' };
  const rest = [prefill, decode].map(({ head, body }) => differences(ask, { head, body: body.replace(BOOTSTRAP, '') }));
  return { fields: [written(drawn)], rest };
};

const BOUNDS = ['max_tokens', 'min_tokens', 'max_completion_tokens', 'max_output_tokens'];
const OF_PREFILL = [...BOUNDS, ...BOUNDS.map((name) => `sampling_params.${name}`), 'stream', 'stream_options'];
const TRANSFER = 'kv_transfer_params';
/** Drawn for each request; Mooncake's only. */
const TRANSFER_ID = /xfer-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;
const QUESTION = 'prompt_logprobs';

const NAMED = [...BOUNDS, 'stream', 'stream_options', TRANSFER, QUESTION].join('|');
const MEMBER = new RegExp(`"(?:${NAMED})"\\s*:\\s*(?:\\{[^{}]*\\}|[^\\s,{}]+)`, 'g');

/** The bytes of a body without the members that change, and without blanks and commas around where they may have been. */
const withoutFields = (body: string): string =>
  body
    .replaceAll(MEMBER, '')
    .replaceAll(/\s*([,{}])\s*/g, '$1')
    .replaceAll(/,+(?=[,}])|(?<=\{),+/g, '');

/** vLLM's: the prefill engine makes one token and hands over, the decode engine gets where the KV is. */
export const readTransfer: ReadPair = (ask, prefill, decode) => {
  const [first, second] = [prefill, decode].map(({ body }) => body.match(TRANSFER_ID) ?? []);
  deepEqual(first, second, 'both go by one transfer id');
  const fields: string[] = [];
  const rest = [prefill, decode].map((recorded, i) => {
    const names = i === 0 ? [...OF_PREFILL, TRANSFER] : [TRANSFER, QUESTION];
    const isField = (line: string): boolean => {
      const path = line.replace(/^[+-]/, '').split(/[:=]/)[0]!;
      return names.some((name) => path === name || (name === TRANSFER && path.startsWith(`${name}.`)));
    };
    const lines = differences(ask, recorded);
    const found = lines.filter((line) => isField(line));
    ok(
      found.some((line) => line.includes(TRANSFER)),
      `no ${TRANSFER} in ${recorded.body}`,
    );
    fields.push(...found.map((line) => `${i === 0 ? 'prefill' : 'decode'} ${line.replaceAll(TRANSFER_ID, 'xfer-…')}`));
    const others = lines.filter((line) => !isField(line));
    const isOwn = others.some((line) => !/^(header|target|method)/.test(line));
    const isSame = isOwn || withoutFields(recorded.body) === withoutFields(ask.body);
    return isSame ? others : [...others, 'body: other bytes around the fields'];
  });
  return { fields: fields.toSorted(), rest };
};
