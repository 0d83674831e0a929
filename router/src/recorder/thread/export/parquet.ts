import { type ByteWriter, type ParquetWriter } from 'hyparquet-writer';
import { callText } from './call-text.ts';
import { topTokensOf } from './top-tokens.ts';
import { type Trajectory, isExact } from './trajectory.ts';
import { outlineJson } from './turn-json.ts';

/** A row group is written after this many tokens or rows: about 100 MB of plain arrays while it is made. */
const GROUP_TOKENS = 1_000_000;
const GROUP_ROWS = 10_000;

type Columns = ConstructorParameters<typeof ParquetWriter>[0]['schema'];

const text = (name: string) =>
  ({ name, type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type: 'REQUIRED' }) as const;

const number = (name: string) => ({ name, type: 'DOUBLE', repetition_type: 'OPTIONAL' }) as const;

/** The three-level form of lists, which all readers support. */
const list = (
  name: string,
  element:
    | { type: 'INT32' }
    | { type: 'DOUBLE'; repetition_type: 'OPTIONAL' }
    | { type: 'BYTE_ARRAY'; converted_type: 'UTF8' },
) =>
  [
    { name, converted_type: 'LIST', repetition_type: 'REQUIRED', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', repetition_type: 'REQUIRED', ...element },
  ] as const;

const NO_BYTES = new Uint8Array(0);

const orNull = (logprob: number): number | null => (Number.isNaN(logprob) ? null : logprob);

/** A trajectory, without bodies, while its row group is gathered. */
interface Row extends Trajectory {
  /** The calls of a trajectory whose tokens are not known, as JSON; null: they are known. */
  readonly text: string | null;
  /** The likeliest tokens at each position, as JSON; null: not known of any token. */
  readonly topTokens: string | null;
}

function rowOf(trajectory: Trajectory): Row {
  const text = callText(trajectory.turns.at(-1)!);
  const turns = trajectory.turns.map((turn) => ({ ...turn, request: null, answer: null, topTokens: NO_BYTES }));
  const top = topTokensOf(trajectory);
  return {
    ...trajectory,
    turns,
    text: text === null ? null : JSON.stringify(text),
    topTokens: top === null ? null : JSON.stringify(top),
  };
}

const columns: readonly { name: string; read: (row: Row) => unknown }[] = [
  { name: 'id', read: ({ id }) => id },
  { name: 'session', read: ({ session }) => session },
  { name: 'group', read: ({ group }) => group },
  { name: 'tenant', read: ({ tenant }) => tenant },
  { name: 'model', read: ({ model }) => model },
  { name: 'exact', read: isExact },
  { name: 'finished', read: ({ outcome }) => outcome !== null },
  { name: 'finished_at_ms', read: ({ outcome }) => outcome?.finishedAtMs ?? null },
  { name: 'reward', read: ({ outcome }) => outcome?.reward ?? null },
  { name: 'labels', read: ({ outcome }) => outcome?.labels ?? [] },
  { name: 'tokens', read: ({ ids }) => Array.from(ids) },
  { name: 'loss_mask', read: ({ mask }) => Array.from(mask) },
  { name: 'rollout_log_probs', read: ({ logprobs }) => Array.from(logprobs, orNull) },
  { name: 'versions', read: ({ versions }) => JSON.stringify(versions) },
  { name: 'ambiguous', read: ({ isAmbiguous }) => isAmbiguous },
  { name: 'turns', read: ({ turns }) => JSON.stringify(turns.map(outlineJson)) },
  { name: 'text', read: ({ text: said }) => said },
  { name: 'rollout_top_logprobs', read: ({ topTokens }) => topTokens },
];

const schema = (): Columns => [
  { name: 'root', num_children: columns.length },
  ...['id', 'session', 'group', 'tenant', 'model'].map(text),
  ...['exact', 'finished'].map((name) => ({ name, type: 'BOOLEAN', repetition_type: 'REQUIRED' }) as const),
  ...['finished_at_ms', 'reward'].map(number),
  ...list('labels', { type: 'BYTE_ARRAY', converted_type: 'UTF8' }),
  ...list('tokens', { type: 'INT32' }),
  ...list('loss_mask', { type: 'INT32' }),
  ...list('rollout_log_probs', { type: 'DOUBLE', repetition_type: 'OPTIONAL' }),
  text('versions'),
  { name: 'ambiguous', type: 'BOOLEAN', repetition_type: 'REQUIRED' },
  text('turns'),
  ...['text', 'rollout_top_logprobs'].map((name) => ({ ...text(name), repetition_type: 'OPTIONAL' }) as const),
];

/** One row per trajectory; versions and turns as JSON. */
export async function* toParquet(trajectories: AsyncIterable<Trajectory>): AsyncGenerator<Uint8Array> {
  const { ByteWriter: Bytes, ParquetWriter: Parquet } = await import('hyparquet-writer');
  const writer = new Bytes();
  const parquet = new Parquet({ writer, schema: schema(), createdBy: 'turnout' });
  let rows: Row[] = [];
  let tokens = 0;
  const write = (): Uint8Array => {
    // Dictionaries and statistics are of no use for random ids and logprobs.
    const columnData = columns.map(({ name, read }) => ({ name, data: rows.map(read) }));
    void parquet.write({ columnData, rowGroupSize: GROUP_ROWS });
    rows = [];
    tokens = 0;
    return take(writer);
  };
  for await (const trajectory of trajectories) {
    rows.push(rowOf(trajectory));
    tokens += trajectory.ids.length;
    if (tokens >= GROUP_TOKENS || rows.length >= GROUP_ROWS) yield write();
  }
  if (rows.length > 0) yield write();
  void parquet.finish();
  yield take(writer);
}

/** Takes the bytes that were written since the last call; the writer's offset continues. */
function take(writer: ByteWriter): Uint8Array {
  const bytes = writer.getBytes().slice();
  writer.index = 0;
  return bytes;
}
