/** A tensor of a safetensors file. */
export interface TensorHead {
  readonly name: string;
  readonly dtype: 'I64' | 'F64' | 'I32' | 'U8';
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** The beginning of a safetensors file: the length of a JSON header, and the header. The bytes of the tensors follow in this order. */
export function safetensorsHead(tensors: readonly TensorHead[]): Buffer {
  let at = 0;
  const entries = tensors.map(({ name, dtype, shape, bytes }) => {
    at += bytes;
    return [name, { dtype, shape, data_offsets: [at - bytes, at] }];
  });
  const json = JSON.stringify(Object.fromEntries(entries));
  // Spaces up to a multiple of eight: what follows is aligned then.
  const header = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header]);
}
