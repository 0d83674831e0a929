import { base64Json, inPieces, listJson, numbersJson } from '../json-parts.ts';
import type { ExpertsRows } from '../chat/experts-rows.ts';
import type { DeliveredGroup, Row, SentGroup } from './rows.ts';

/** One line per group, with a list of its trajectories. A line may be longer than a string of V8, so it is returned in pieces. */
export async function* toNdjson(groups: AsyncIterable<SentGroup>): AsyncGenerator<Uint8Array> {
  for await (const delivered of groups) yield* inPieces(lineOf(delivered));
}

function* lineOf(delivered: SentGroup): Generator<string> {
  yield `${JSON.stringify(headJson(delivered)).slice(0, -1)},"rows":[`;
  for (const [i, row] of delivered.rows.entries()) {
    if (i > 0) yield ',';
    yield* rowJson(row);
  }
  yield ']}\n';
  delivered.encoded();
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

function* rowJson(row: Row): Generator<string> {
  const { finishReason } = row.turns.at(-1)!;
  const members = {
    session: row.session,
    trajectory: row.trajectory,
    model: row.model,
    tokens: row.ids,
    loss_mask: row.mask,
    rollout_log_probs: row.logprobs,
    versions: row.versions,
    lag: row.lag,
    reward: row.reward,
    rewards: row.rewards,
    turn_rewards: row.turnRewards,
    token_rewards: row.tokenRewards,
    turns: turnsJson(row),
    finish_reason: finishReason,
    flags: row.flags,
    labels: row.labels,
    ...(row.topTokens === null ? {} : { rollout_top_logprobs: row.topTokens }),
  };
  for (const [i, [name, value]] of Object.entries(members).entries()) {
    yield `${i === 0 ? '{' : ','}"${name}":`;
    if (ArrayBuffer.isView(value)) yield* numbersJson(value);
    else if (Array.isArray(value)) yield* listJson(value);
    else yield JSON.stringify(value);
  }
  if (row.experts !== null) yield* expertsJson(row.experts);
  yield '}';
}

export const turnsJson = ({ turns }: Row) =>
  turns.map(({ id, from, to, finishReason, worker }) => ({
    id,
    from,
    to,
    finish_reason: finishReason,
    worker,
  }));

function* expertsJson(experts: ExpertsRows): Generator<string> {
  const { shape, dtype, bytes } = packedExperts(experts);
  yield `,"routed_experts":{"shape":${JSON.stringify(shape)},"dtype":"${dtype}","base64":`;
  yield* base64Json(bytes);
  yield '}';
}

/** The numbers in the smallest type that has them all. */
export function packedExperts({ shape, numbers }: ExpertsRows) {
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
