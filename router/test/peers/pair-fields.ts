import { ok } from 'node:assert/strict';
import { Digits, readExact } from './exact-json.ts';
import type { Recorded } from './recorder.ts';

/** What the two engines of a pair were asked, told apart: what the client said and what makes them a pair. */
export interface Halves {
  readonly prefill: Recorded;
  readonly decode: Recorded;
  /** With `chance` in place of numbers that are drawn. */
  readonly fields: unknown;
}

const VALUE = String.raw`(?:\[[^\]]*\]|"[^"]*"|null|\d+)`;
const BOOTSTRAP = new RegExp(
  `,("bootstrap_host":${VALUE},"bootstrap_port":${VALUE},"bootstrap_room":${VALUE})(?=\\s*\\}\\s*$)`,
);

/** SGLang's: the same three fields for both, at the end of the body; lists of them for batches. */
export function readBootstrap(prefill: Recorded, decode: Recorded): Halves {
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
  const without = ({ head, body }: Recorded): Recorded => ({ head, body: body.replace(BOOTSTRAP, '') });
  return {
    prefill: without(prefill),
    decode: without(decode),
    fields: { ...read, bootstrap_room: Array.isArray(room) ? rooms.map(() => 'chance') : 'chance' },
  };
}
