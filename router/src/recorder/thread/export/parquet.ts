import type { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { callText } from './call-text.ts';
import { topTokensOf } from './top-tokens.ts';
import { type Trajectory, isExact } from './trajectory.ts';
import { outlineJson } from './turn-json.ts';

/** A row group is written after so much. It blocks the thread for about 0.1 s. */
const GROUP_BYTES = 1_048_576;
/** Of a token with its logprob and its mask. */
const TOKEN_BYTES = 13;

type Columns = ConstructorParameters<typeof ParquetWriter>[0]['schema'];

const orNull = (logprob: number): number | null => (Number.isNaN(logprob) ? null : logprob);

/** A trajectory while its row group is gathered. */
interface Row extends Omit<Trajectory, 'turns'> {
  readonly isExact: boolean;
  /** As JSON. */
  readonly turns: string;
  /** The calls of a trajectory whose tokens are not known, as JSON; null: they are known. */
  readonly text: string | null;
  /** The likeliest tokens at each position, as JSON; null: not known of any token. */
  readonly topTokens: string | null;
}

function rowOf(trajectory: Trajectory): Row {
  const { turns } = trajectory;
  const text = callText(turns.at(-1)!);
  const top = topTokensOf(trajectory);
  return {
    ...trajectory,
    isExact: isExact(trajectory),
    turns: JSON.stringify(turns.map(outlineJson)),
    text: text === null ? null : JSON.stringify(text),
    topTokens: top === null ? null : JSON.stringify(top),
  };
}

const bytesOf = ({ ids, turns, text, topTokens }: Row): number =>
  TOKEN_BYTES * ids.length + turns.length + (text?.length ?? 0) + (topTokens?.length ?? 0);

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
  flag('exact', (row) => row.isExact),
  flag('finished', ({ outcome }) => outcome !== null),
  numberOrNull('finished_at_ms', ({ outcome }) => outcome?.finishedAtMs ?? null),
  numberOrNull('reward', ({ outcome }) => outcome?.reward ?? null),
  list(TEXT)('labels', ({ outcome }) => outcome?.labels ?? []),
  numbers('tokens', ({ ids }) => Array.from(ids)),
  numbers('loss_mask', ({ mask }) => Array.from(mask)),
  list({ type: 'DOUBLE', repetition_type: 'OPTIONAL' })('rollout_log_probs', (row) => Array.from(row.logprobs, orNull)),
  text('versions', ({ versions }) => JSON.stringify(versions)),
  flag('ambiguous', ({ isAmbiguous }) => isAmbiguous),
  text('turns', ({ turns }) => turns),
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
  let bytes = 0;
  const write = (): Uint8Array => {
    // Statistics of ids and logprobs are of no use, and take half of the time.
    const columnData = columns.map(({ name, read, elements }) => {
      return { name, data: rows.map(read), statistics: elements.length === 1 };
    });
    void parquet.write({ columnData, rowGroupSize: rows.length });
    rows = [];
    bytes = 0;
    return take(writer);
  };
  for await (const trajectory of trajectories) {
    const row = rowOf(trajectory);
    rows.push(row);
    bytes += bytesOf(row);
    if (bytes >= GROUP_BYTES) yield write();
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
