import { Decoder } from '@msgpack/msgpack';

/**
 * The events of engines' prefix caches (vLLM 0.32 `distributed/kv_events.py`, SGLang 0.5.23
 * `disaggregation/kv_events.py`). Both send a batch `[ts, events, rank]` in msgpack, an event as a map with its name in
 * `type`; older releases send it as an array that starts with its name.
 *
 * An engine's name of a block is opaque: a 64-bit integer, signed or not, or up to 32 bytes, of which the last 64 bits
 * are kept.
 */
export type KvEvent = BlocksStored | BlocksRemoved | BlocksCleared;

/** Blocks were added to the cache, each the continuation of the one before it. */
export interface BlocksStored {
  readonly type: 'stored';
  readonly blocks: BigUint64Array;
  /** The block that the first one continues; null if it begins a prompt. */
  readonly parent: bigint | null;
  /** Of all blocks in a row. Empty if not reported (copies to lower tiers): then only the handle identifies a block. */
  readonly tokenIds: Int32Array;
  readonly blockSize: number;
  /** The memory that holds it, in the engine's words; null in older releases. */
  readonly medium: string | null;
  readonly isRemote: boolean;
  readonly lora: string | null;
  readonly salt: string | null;
  /** Further keys of blocks (images), by block; null if no block has any. */
  readonly extraKeys: readonly (string | null)[] | null;
  /** Engines with several kinds of layers have a cache group for each. */
  readonly group: number | null;
  readonly groupKind: string | null;
}

export interface BlocksRemoved {
  readonly type: 'removed';
  readonly blocks: BigUint64Array;
  readonly medium: string | null;
  readonly isRemote: boolean;
  readonly group: number | null;
}

export interface BlocksCleared {
  readonly type: 'cleared';
}

export interface KvBatch {
  /** Seconds, by the engine's clock. */
  readonly ts: number;
  readonly events: readonly KvEvent[];
  /** Events of an unknown type or form. */
  readonly skipped: number;
}

/** Larger than any batch of an engine; bounds the memory for a broken message. */
const MAX_ITEMS = 4_194_304;

/** Names by position in the array form. */
const storedFields =
  'type block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx kv_cache_spec_kind';
const removedFields = 'type block_hashes medium group_idx';
const fieldsOf: Readonly<Record<string, readonly string[]>> = {
  BlockStored: storedFields.split(' '),
  BlockRemoved: removedFields.split(' '),
  AllBlocksCleared: ['type'],
};

type Fields = Readonly<Record<string, unknown>>;

/** @returns the batch, or what is wrong with the payload */
export function readKvBatch(payload: Uint8Array): KvBatch | string {
  let batch: unknown;
  try {
    const most = Math.min(payload.length, MAX_ITEMS);
    batch = new Decoder({ useBigInt64: true, maxArrayLength: most, maxMapLength: most }).decode(payload);
  } catch (error) {
    return `not msgpack: ${(error as Error).message}`;
  }
  if (!Array.isArray(batch)) return 'not a batch: not an array';
  const [ts, sent] = batch as unknown[];
  if (typeof ts !== 'number') return 'not a batch: the first entry is not a time';
  if (!Array.isArray(sent)) return 'not a batch: the second entry is not a list of events';
  const events: KvEvent[] = [];
  for (const one of sent as unknown[]) {
    const event = readEvent(one);
    if (event !== null) events.push(event);
  }
  return { ts, events, skipped: sent.length - events.length };
}

function readEvent(sent: unknown): KvEvent | null {
  const fields = named(sent);
  switch (fields?.['type']) {
    case 'BlockStored':
      return readStored(fields);
    case 'BlockRemoved':
      return readRemoved(fields);
    case 'AllBlocksCleared':
      return { type: 'cleared' };
    default:
      return null;
  }
}

function named(sent: unknown): Fields | null {
  if (typeof sent !== 'object' || sent === null) return null;
  if (!Array.isArray(sent)) return sent as Fields;
  const names = typeof sent[0] === 'string' && Object.hasOwn(fieldsOf, sent[0]) ? fieldsOf[sent[0]]! : [];
  return Object.fromEntries(names.map((name, i) => [name, sent[i] as unknown]));
}

function readStored(fields: Fields): BlocksStored | null {
  const blocks = readHandles(fields['block_hashes']);
  const parent = fields['parent_block_hash'] == null ? null : readHandle(fields['parent_block_hash']);
  const tokenIds = readTokens(fields['token_ids']);
  const blockSize = fields['block_size'];
  if (blocks === null || parent === undefined || tokenIds === null) return null;
  if (!Number.isInteger(blockSize) || (blockSize as number) < 0) return null;
  const loraId = fields['lora_id'];
  const loraName = text(fields['lora_name']);
  const extras = readExtras(fields['extra_keys'], loraName);
  if (extras === undefined) return null;
  let salt = text(fields['cache_salt']);
  // vLLM sends a salt in the extra keys of a prompt's first block only, as a bare string.
  const first = extras?.[0] ?? [];
  if (salt === null && parent === null && first.length === 1 && typeof first[0] === 'string') {
    salt = first[0];
    extras![0] = [];
  }
  return {
    type: 'stored',
    blocks,
    parent,
    tokenIds,
    blockSize: blockSize as number,
    medium: text(fields['medium']),
    isRemote: fields['locality'] === 'REMOTE',
    lora: loraName ?? (typeof loraId === 'number' ? `#${loraId}` : null),
    salt,
    extraKeys: extras?.some((keys) => keys.length > 0)
      ? extras.map((keys) => (keys.length === 0 ? null : keys.map(spelt).join('\n')))
      : null,
    group: groupOf(fields),
    groupKind: text(fields['kv_cache_spec_kind']),
  };
}

function readRemoved(fields: Fields): BlocksRemoved | null {
  const blocks = readHandles(fields['block_hashes']);
  if (blocks === null) return null;
  return {
    type: 'removed',
    blocks,
    medium: text(fields['medium']),
    isRemote: fields['locality'] === 'REMOTE',
    group: groupOf(fields),
  };
}

const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);

function groupOf(fields: Fields): number | null {
  const group = fields['group_idx'];
  return typeof group === 'number' ? group : null;
}

function readHandles(sent: unknown): BigUint64Array | null {
  if (!Array.isArray(sent)) return null;
  const handles = new BigUint64Array(sent.length);
  for (let i = 0; i < handles.length; i++) {
    const handle = readHandle(sent[i]);
    if (handle === undefined) return null;
    handles[i] = handle;
  }
  return handles;
}

function readHandle(sent: unknown): bigint | undefined {
  if (typeof sent === 'bigint') return BigInt.asUintN(64, sent);
  if (Number.isInteger(sent)) return BigInt.asUintN(64, BigInt(sent as number));
  if (!(sent instanceof Uint8Array) || sent.length === 0) return undefined;
  let handle = 0n;
  for (const byte of sent.subarray(-8)) handle = (handle << 8n) | BigInt(byte);
  return handle;
}

function readTokens(sent: unknown): Int32Array | null {
  if (!Array.isArray(sent)) return null;
  const tokenIds = new Int32Array(sent.length);
  for (let i = 0; i < tokenIds.length; i++) {
    // SGLang with EAGLE sends every token together with the next one.
    const one: unknown = Array.isArray(sent[i]) ? (sent[i] as unknown[])[0] : sent[i];
    if (typeof one !== 'number' || (one | 0) !== one) return null;
    tokenIds[i] = one;
  }
  return tokenIds;
}

/** Further keys by block, without the adapter, which all blocks name. undefined: invalid. */
function readExtras(sent: unknown, loraName: string | null): unknown[][] | null | undefined {
  if (sent == null) return null;
  if (!Array.isArray(sent)) return undefined;
  const extras: unknown[][] = [];
  for (const keys of sent as unknown[]) {
    if (keys !== null && !Array.isArray(keys)) return undefined;
    const list: unknown[] = keys ?? [];
    extras.push(loraName !== null && list[0] === loraName ? list.slice(1) : list);
  }
  return extras;
}

function spelt(key: unknown): string {
  if (key instanceof Uint8Array) return Buffer.from(key).toString('hex');
  return Array.isArray(key) ? key.map(spelling).join('\t') : spelling(key);
}

/** The type is included: the text "1" is not the number 1. */
function spelling(key: unknown): string {
  if (typeof key === 'string') return `text ${key}`;
  return typeof key === 'number' || typeof key === 'bigint' ? `number ${key}` : 'other';
}
