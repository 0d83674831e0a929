import { type ByteWriter, type ParquetWriter } from 'hyparquet-writer';
import { callText } from './call-text.ts';
import { topTokensOf } from './top-tokens.ts';
import { type Trajectory, isExact } from './trajectory.ts';
import { outlineJson } from './turn-json.ts';

/** A row group is written after this many tokens or rows: about 100 MB of plain arrays while it is made. */
const GROUP_TOKENS = 1_000_000;
const GROUP_ROWS = 10_000;

type Columns = ConstructorParameters<typeof ParquetWriter>[0]['schema'];

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

interface Column {
  readonly name: string;
  readonly read: (row: Row) => unknown;
  /** Its elements in the schema of the file. */
  readonly elements: Columns;
}

type Element = Omit<Columns[number], 'name'>;
type Read = Column['read'];

const TEXT = { type: 'BYTE_ARRAY', converted_type: 'UTF8' } as const;

const column =
  (element: Element) =>
  (name: string, read: Read): Column => ({ name, read, elements: [{ name, ...element }] });
const text = column({ ...TEXT, repetition_type: 'REQUIRED' });
const textOrNull = column({ ...TEXT, repetition_type: 'OPTIONAL' });
const flag = column({ type: 'BOOLEAN', repetition_type: 'REQUIRED' });
const numberOrNull = column({ type: 'DOUBLE', repetition_type: 'OPTIONAL' });

/** The three-level form of lists, which all readers support. */
const list =
  (element: Element) =>
  (name: string, read: Read): Column => ({
    name,
    read,
    elements: [
      { name, converted_type: 'LIST', repetition_type: 'REQUIRED', num_children: 1 },
      { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
      { name: 'element', repetition_type: 'REQUIRED', ...element },
    ],
  });
const numbers = list({ type: 'INT32' });

const columns: readonly Column[] = [
  text('id', ({ id }) => id),
  text('session', ({ session }) => session),
  text('group', ({ group }) => group),
  text('tenant', ({ tenant }) => tenant),
  text('model', ({ model }) => model),
  flag('exact', isExact),
  flag('finished', ({ outcome }) => outcome !== null),
  numberOrNull('finished_at_ms', ({ outcome }) => outcome?.finishedAtMs ?? null),
  numberOrNull('reward', ({ outcome }) => outcome?.reward ?? null),
  list(TEXT)('labels', ({ outcome }) => outcome?.labels ?? []),
  numbers('tokens', ({ ids }) => Array.from(ids)),
  numbers('loss_mask', ({ mask }) => Array.from(mask)),
  list({ type: 'DOUBLE', repetition_type: 'OPTIONAL' })('rollout_log_probs', (row) => Array.from(row.logprobs, orNull)),
  text('versions', ({ versions }) => JSON.stringify(versions)),
  flag('ambiguous', ({ isAmbiguous }) => isAmbiguous),
  text('turns', ({ turns }) => JSON.stringify(turns.map(outlineJson))),
  textOrNull('text', ({ text: said }) => said),
  textOrNull('rollout_top_logprobs', ({ topTokens }) => topTokens),
];

const schema = (): Columns => [
  { name: 'root', num_children: columns.length },
  ...columns.flatMap(({ elements }) => elements),
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
