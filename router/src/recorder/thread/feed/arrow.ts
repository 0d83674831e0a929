import {
  AsyncByteQueue,
  Binary,
  type Data,
  type DataType,
  Field,
  Float32,
  Float64,
  Int32,
  Int64,
  List,
  RecordBatch,
  RecordBatchStreamWriter,
  Schema,
  Struct,
  Uint8,
  Utf8,
  makeData,
  vectorFromArray,
} from 'apache-arrow';
import { headJson, packedExperts, turnsJson } from './ndjson.ts';
import type { DeliveredGroup, Row, SentGroup } from './rows.ts';

/** Numbers as they lie in memory. */
type Numbers = Int32Array | Float32Array | Float64Array | Uint8Array;

const MAX_OFFSET = 2 ** 31 - 1;

interface Column {
  readonly name: string;
  readonly type: DataType;
  readonly make: (delivered: DeliveredGroup) => Data;
}

type Values<T> = (row: Row, head: ReturnType<typeof headJson>) => T | null;

/** A column of texts, numbers or lists of texts: the value of each row. */
const values =
  <T>(type: DataType) =>
  (name: string, read: Values<T>): Column => ({
    name,
    type,
    make: (delivered) => {
      const head = headJson(delivered);
      const all = delivered.rows.map((row) => read(row, head));
      requireFits(name, all);
      return vectorFromArray(all, type).data[0]!;
    },
  });

/** Throws if texts or bytes have more than the 32-bit offsets of a column can say: apache-arrow would write what is left of larger ones. */
function requireFits(name: string, values: readonly unknown[]): void {
  const sizes = values.map((value) =>
    typeof value === 'string' ? Buffer.byteLength(value) : ArrayBuffer.isView(value) ? value.byteLength : 0,
  );
  if (sizes.reduce((sum, size) => sum + size, 0) > MAX_OFFSET)
    throw new RangeError(`${name} of a group has more than 2 GiB, which Arrow has no place for: take it as ndjson`);
}

/** A column of lists of numbers, whose memory is copied once. */
const lists =
  (item: Int32 | Float32 | Float64 | Uint8, join: (length: number) => Numbers) =>
  (name: string, read: (row: Row) => ArrayLike<number> | null): Column => {
    const type = new List(new Field('item', item));
    return {
      name,
      type,
      make: ({ rows }) => {
        const read1 = rows.map(read);
        const valueOffsets = new Int32Array(rows.length + 1);
        const nullBitmap = new Uint8Array(Math.ceil(rows.length / 8));
        for (const [i, list] of read1.entries()) {
          valueOffsets[i + 1] = valueOffsets[i]! + (list?.length ?? 0);
          if (list !== null) nullBitmap[i >> 3]! |= 1 << (i & 7);
        }
        const data = join(valueOffsets[rows.length]!);
        for (const [i, list] of read1.entries()) if (list !== null) data.set(list, valueOffsets[i]);
        const child = makeData({ type: item, data } as never);
        const nullCount = read1.filter((list) => list === null).length;
        return makeData({ type, length: rows.length, nullCount, nullBitmap, valueOffsets, child } as never);
      },
    };
  };

const text = values<string>(new Utf8());
const whole = values<number>(new Int32());
const large = values<bigint>(new Int64());
const number = values<number>(new Float64());
const texts = values<readonly string[]>(new List(new Field('item', new Utf8())));
const int32s = lists(new Int32(), (length) => new Int32Array(length));
const float32s = lists(new Float32(), (length) => new Float32Array(length));
const float64s = lists(new Float64(), (length) => new Float64Array(length));
const uint8s = lists(new Uint8(), (length) => new Uint8Array(length));
const bytes = values<Uint8Array>(new Binary());

const orNaN = (numbers: readonly (number | null)[]): number[] => numbers.map((each) => each ?? NaN);
const orNull = (value: unknown): string | null => (value === null ? null : JSON.stringify(value));

/** A row for each trajectory; the columns of its group are the same in all rows of a record batch. */
const columns: readonly Column[] = [
  large('id', (_, { id }) => BigInt(id)),
  text('lease', (_, { lease }) => lease),
  large('cursor', (_, { cursor }) => BigInt(cursor)),
  text('group', (_, { group }) => group),
  text('tenant', (_, { tenant }) => tenant),
  text('because', (_, { because }) => because),
  whole('size', (_, { size }) => size),
  whole('deliveries', (_, { deliveries }) => deliveries),
  number('ready_at_ms', (_, head) => head.ready_at_ms),
  text('version', (_, { version }) => version),
  texts('version_names', (_, head) => head.version_names),
  text('session', ({ session }) => session),
  text('trajectory', ({ trajectory }) => trajectory),
  text('model', ({ model }) => model),
  int32s('tokens', ({ ids }) => ids),
  uint8s('loss_mask', ({ mask }) => mask),
  float32s('rollout_log_probs', ({ logprobs }) => logprobs),
  int32s('versions', ({ versions }) => versions),
  whole('lag', ({ lag }) => lag),
  number('reward', ({ reward }) => reward),
  text('rewards', ({ rewards }) => JSON.stringify(rewards)),
  float64s('turn_rewards', ({ turnRewards }) => orNaN(turnRewards)),
  float64s('token_rewards', ({ tokenRewards }) => tokenRewards),
  text('turns', (row) => JSON.stringify(turnsJson(row))),
  text('finish_reason', ({ turns }) => turns.at(-1)!.finishReason),
  texts('flags', ({ flags }) => flags),
  texts('labels', ({ labels }) => labels),
  bytes('routed_experts', ({ experts }) => (experts === null ? null : packedExperts(experts).bytes)),
  text('routed_experts_type', ({ experts }) => (experts === null ? null : packedExperts(experts).dtype)),
  int32s('routed_experts_shape', ({ experts }) => experts?.shape ?? null),
  text('rollout_top_logprobs', ({ topTokens }) => orNull(topTokens)),
];

const schema = new Schema(columns.map(({ name, type }) => new Field(name, type, true)));

/** What a writer has written since the last look. */
class Written extends AsyncByteQueue {
  #pieces: Uint8Array[] = [];

  override write(piece: Uint8Array): void {
    if (piece.byteLength > 0) this.#pieces.push(piece);
  }

  take(): Uint8Array {
    const taken = Buffer.concat(this.#pieces);
    this.#pieces = [];
    return taken;
  }
}

/** An Arrow IPC stream: a record batch for each group. */
export async function* toArrow(groups: AsyncIterable<SentGroup>): AsyncGenerator<Uint8Array> {
  const writer = new RecordBatchStreamWriter();
  const written = new Written();
  writer.reset(written, schema);
  for await (const delivered of groups) {
    const children = columns.map(({ make }) => make(delivered));
    const type = new Struct(schema.fields);
    writer.write(new RecordBatch(schema, makeData({ type, length: delivered.rows.length, nullCount: 0, children })));
    delivered.encoded();
    yield written.take();
  }
  writer.close();
  yield written.take();
}
