/** The samples in an answer of `POST /sessions/{id}/samples`, read as miles reads them. */
export interface Sample {
  readonly tokens: number[];
  /** Of the response, which is all from the first sampled token on. */
  readonly mask: number[];
  readonly logprobs: number[];
  /** null: it has none. */
  readonly experts: { readonly shape: readonly number[]; readonly numbers: readonly number[] } | null;
  readonly meta: Record<string, unknown> & {
    readonly response: string;
    readonly response_length: number;
    readonly status: string;
  };
}

export function readSamples(bytes: Buffer): Sample[] {
  const size = Number(bytes.readBigUInt64LE());
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + size)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const dataOf = (name: string): ArrayBuffer => {
    const [from, to] = header[name]!.data_offsets;
    const part = bytes.subarray(8 + size + from, 8 + size + to);
    return part.buffer.slice(part.byteOffset, part.byteOffset + part.length) as ArrayBuffer;
  };
  const expertsOf = (name: string): Sample['experts'] => {
    const found = header[name];
    if (found === undefined) return null;
    if (found.dtype !== 'I32') throw new Error(`${name} is ${found.dtype}`);
    return { shape: found.shape, numbers: [...new Int32Array(dataOf(name))] };
  };
  const { samples } = JSON.parse(Buffer.from(dataOf('_samples_meta')).toString()) as { samples: Sample['meta'][] };
  return samples.map((meta, n) => ({
    tokens: Array.from(new BigInt64Array(dataOf(`tokens.${n}`)), Number),
    mask: [...new Uint8Array(dataOf(`loss_mask.${n}`))],
    logprobs: [...new Float64Array(dataOf(`rollout_log_probs.${n}`))],
    experts: expertsOf(`rollout_routed_experts.${n}`),
    meta,
  }));
}
