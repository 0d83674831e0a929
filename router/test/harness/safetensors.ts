/** The samples in an answer of `POST /sessions/{id}/samples`, read as miles reads them. */
export interface Sample {
  readonly tokens: number[];
  /** Of the response, which is all from the first sampled token on. */
  readonly mask: number[];
  readonly logprobs: number[];
  readonly meta: Record<string, unknown> & {
    readonly response: string;
    readonly response_length: number;
    readonly status: string;
  };
}

export function readSamples(bytes: Buffer): Sample[] {
  const size = Number(bytes.readBigUInt64LE());
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + size)) as Record<string, { data_offsets: [number, number] }>;
  const dataOf = (name: string): ArrayBuffer => {
    const [from, to] = header[name]!.data_offsets;
    const part = bytes.subarray(8 + size + from, 8 + size + to);
    return part.buffer.slice(part.byteOffset, part.byteOffset + part.length) as ArrayBuffer;
  };
  const { samples } = JSON.parse(Buffer.from(dataOf('_samples_meta')).toString()) as { samples: Sample['meta'][] };
  return samples.map((meta, n) => ({
    tokens: Array.from(new BigInt64Array(dataOf(`tokens.${n}`)), Number),
    mask: [...new Uint8Array(dataOf(`loss_mask.${n}`))],
    logprobs: [...new Float64Array(dataOf(`rollout_log_probs.${n}`))],
    meta,
  }));
}
