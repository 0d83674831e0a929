import { type Field, readWireHead } from '../harness/message.ts';
import { type Ask, bytesOf } from './asks.ts';
import { changes, readExact } from './exact-json.ts';
import type { Recorded } from './recorder.ts';

/** Made up by routers, and addresses: what stands around is their habit. */
const CHANCE =
  /(?<=: (?:req-|chatcmpl-|cmpl-|gnt-|resp-|msg_))[\w-]{12,}|\d+\.\d+\.\d+\.\d+:\d+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}/g;

/** Where what an engine got is not what the client sent, a line each; none when every byte is the client's. */
export function differences(ask: Ask, { head, body }: Recorded): string[] {
  const sent = readWireHead(Buffer.from(bytesOf(ask), 'latin1'))!;
  const [method, target] = head.line.split(' ');
  return [
    ...(method === ask.method ? [] : [`method: ${method}`]),
    ...(target === ask.target ? [] : [`target: ${target}`]),
    ...fieldChanges(sent.fields, head.fields),
    ...bodyChanges(ask.body, body),
  ];
}

function fieldChanges(sent: readonly Field[], got: readonly Field[]): string[] {
  const lines = (fields: readonly Field[]): string[] =>
    // The length is the body's, or the recorder would not have read it; Host is the engine's or the client's, as it may be.
    fields.filter(([name]) => !/^(content-length|host)$/i.test(name)).map(([name, value]) => `${name}: ${value}`);
  const [before, after] = [lines(sent), lines(got)];
  const gone = before.filter((line) => !after.includes(line)).map((line) => `header -${line}`);
  const come = after.filter((line) => !before.includes(line)).map((line) => `header +${line.replaceAll(CHANCE, '…')}`);
  const kept = after.filter((line) => before.includes(line));
  const isInOrder = before.filter((line) => after.includes(line)).join('\n') === kept.join('\n');
  return [...gone, ...come, ...(isInOrder ? [] : ['header lines in another order'])];
}

function bodyChanges(sent: string, got: string): string[] {
  if (sent === got) return [];
  let values: [unknown, unknown];
  try {
    values = [readExact(sent), readExact(got)];
  } catch {
    return ['body: other bytes'];
  }
  const changed = changes(...values);
  return changed.length > 0 ? changed : ['body: the same values in other bytes'];
}
