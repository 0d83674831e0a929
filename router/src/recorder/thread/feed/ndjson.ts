import type { DeliveredGroup, Row } from './rows.ts';

/** One line per group, with a list of its trajectories. */
export async function* toNdjson(groups: AsyncIterable<DeliveredGroup>): AsyncGenerator<Uint8Array> {
  for await (const delivered of groups) {
    yield Buffer.from(`${JSON.stringify({ ...headJson(delivered), rows: delivered.rows.map(rowJson) })}\n`);
  }
}

/** What a group has beside its rows. */
export const headJson = ({ group, lease, version, versionNames }: DeliveredGroup) => ({
  id: group.id,
  lease,
  cursor: group.position,
  group: group.name,
  tenant: group.tenant,
  because: group.because,
  size: group.size,
  deliveries: group.deliveries,
  ready_at_ms: group.readyMs,
  version,
  version_names: versionNames,
});

// JSON has null for NaN: not known.
const rowJson = (row: Row) => ({
  session: row.session,
  trajectory: row.trajectory,
  model: row.model,
  tokens: Array.from(row.ids),
  loss_mask: Array.from(row.mask),
  rollout_log_probs: Array.from(row.logprobs),
  versions: Array.from(row.versions),
  lag: row.lag,
  reward: row.reward,
  rewards: row.rewards,
  turn_rewards: row.turnRewards,
  token_rewards: row.tokenRewards === null ? null : Array.from(row.tokenRewards),
  turns: turnsJson(row),
  finish_reason: row.turns.at(-1)!.finishReason,
  flags: row.flags,
  labels: row.labels,
  ...(row.experts === null ? {} : { routed_experts: expertsJson(row) }),
  ...(row.topTokens === null ? {} : { rollout_top_logprobs: row.topTokens }),
});

export const turnsJson = ({ turns }: Row) =>
  turns.map(({ id, from, to, finishReason, worker }) => ({
    id,
    from,
    to,
    finish_reason: finishReason,
    worker,
  }));

function expertsJson({ experts }: Row) {
  const { shape, dtype, bytes } = packedExperts(experts!);
  return { shape, dtype, base64: bytes.toString('base64') };
}

/** The numbers in the smallest type that has them all. */
export function packedExperts({ shape, numbers }: NonNullable<Row['experts']>) {
  const most = numbers.reduce((max, number) => Math.max(max, number), 0);
  const least = numbers.reduce((min, number) => Math.min(min, number), 0);
  const [dtype, packed] =
    least < 0 || most > 65_535
      ? (['int32', numbers] as const)
      : most > 255
        ? (['uint16', Uint16Array.from(numbers)] as const)
        : (['uint8', Uint8Array.from(numbers)] as const);
  return { shape, dtype, bytes: Buffer.from(packed.buffer, packed.byteOffset, packed.byteLength) };
}
