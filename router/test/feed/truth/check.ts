import type { Generated } from '../../exact/journal.ts';
import type { FeedGroup, FeedRow } from '../../harness/feed-scene.ts';
import type { Acked, Delivered, Session } from './world.ts';

export interface Seen {
  readonly sessions: ReadonlyMap<string, Session>;
  readonly delivered: readonly Delivered[];
  readonly acked: readonly Acked[];
  /** What the engines really sampled. */
  readonly generated: readonly Generated[];
}

export interface Checked {
  /** Each begins with what is wrong. */
  readonly problems: string[];
  /** By the name of the group: it was delivered. */
  readonly groups: ReadonlySet<string>;
  readonly tokens: number;
  /** Sampled tokens whose version was not known. */
  readonly unknown: number;
}

/** Compares what consumers got with what engines sampled and what clients were told. */
export function check(
  { sessions, delivered, acked, generated }: Seen,
  isExpected: (group: string) => boolean,
): Checked {
  const problems: string[] = [];
  const bySession = new Map<string, Generated[]>();
  const byCall = new Map<string, Generated[]>();
  for (const each of generated) {
    const [session = ''] = each.call.split('.');
    bySession.set(session, [...(bySession.get(session) ?? []), each]);
    byCall.set(each.call, [...(byCall.get(each.call) ?? []), each]);
  }
  const ackedMs = new Map(acked.map(({ id, atMs }) => [id, atMs]));
  const ids = new Map<string, number>();
  const counts = { tokens: 0, unknown: 0 };
  for (const { group, askedMs } of delivered) {
    const { group: name, id } = group;
    if (askedMs > (ackedMs.get(id) ?? Infinity)) problems.push(`after its ack: ${name}`);
    if ((ids.get(name) ?? id) !== id) problems.push(`two groups: ${name} ${id} ${ids.get(name)}`);
    ids.set(name, id);
    problems.push(...checkGroup(group, sessions, bySession, byCall, counts));
  }
  const groups = new Set(ids.keys());
  for (const group of new Set([...sessions.values()].map((session) => session.group))) {
    if (isExpected(group) && !groups.has(group)) problems.push(`not delivered: ${group}`);
    if (!isExpected(group) && groups.has(group)) problems.push(`should be dropped: ${group}`);
  }
  for (const [name, id] of ids) if (!ackedMs.has(id)) problems.push(`not acknowledged: ${name}`);
  return { problems, groups, ...counts };
}

type ByName = ReadonlyMap<string, readonly Generated[]>;

function* checkGroup(
  group: FeedGroup,
  sessions: ReadonlyMap<string, Session>,
  bySession: ByName,
  byCall: ByName,
  counts: { tokens: number; unknown: number },
): Generator<string> {
  const members = [...sessions.values()].filter((session) => session.group === group.group);
  for (const { name, reward, whole, endsByHeader } of members) {
    const rows = group.rows.filter(({ session }) => session === name);
    if (rows.length === 0) yield `no row: ${name}`;
    for (const row of rows) {
      if (row.reward !== reward) yield `reward: ${name} ${row.reward} in place of ${reward}`;
      yield* checkRow(row, group, bySession.get(name) ?? [], counts);
    }
    for (const call of whole) {
      // The last request was repeated, because its response got lost: the session had ended by the first one that reached the router.
      const isRepeated = endsByHeader && call === whole.at(-1);
      const turn = call.slice(0, call.lastIndexOf('.') + 1);
      const calls = isRepeated
        ? (bySession.get(name) ?? []).map(({ call: each }) => each).filter((each) => each.startsWith(turn))
        : [call];
      const has = calls
        .flatMap((each) => byCall.get(each) ?? [])
        .some(({ inputIds, outputIds }) =>
          rows.some(({ tokens }) => startsWith(tokens, [...inputIds, ...(isRepeated ? [] : outputIds)])),
        );
      if (!has) yield `lost: the response of ${call} is in no row`;
    }
  }
  const foreign = group.rows.find(({ session }) => sessions.get(session)?.group !== group.group);
  if (foreign !== undefined) yield `foreign row: ${foreign.session} in ${group.group}`;
}

/** What was sampled in each turn is what one engine sampled after these tokens. */
function* checkRow(
  row: FeedRow,
  { version_names: names }: FeedGroup,
  candidates: readonly Generated[],
  counts: { tokens: number; unknown: number },
): Generator<string> {
  const { tokens, loss_mask: mask, rollout_log_probs: logprobs, versions } = row;
  for (const { id, from, to } of row.turns) {
    const sampled = mask.indexOf(1, from);
    const start = sampled < 0 || sampled >= to ? to : sampled;
    if (start === to) continue;
    const isOf = ({ inputIds, outputIds, logprobs: own }: Generated): boolean =>
      inputIds.length === start &&
      startsWith(tokens, inputIds) &&
      startsWith([...inputIds, ...outputIds], tokens.slice(0, to)) &&
      logprobs.slice(start, to).every((logprob, i) => logprob === null || logprob === own[i]);
    const engine = candidates.find(isOf);
    if (engine === undefined) {
      yield `tokens or logprobs: turn ${id} of ${row.session} is of no engine`;
      continue;
    }
    for (let i = start; i < to; i++) {
      counts.tokens++;
      if (mask[i] !== 1) yield `mask: ${id} at ${i}`;
      const version = names[versions[i]!] ?? null;
      if (version === null) counts.unknown++;
      else if (version !== engine.versions[i - start])
        yield `version: ${id} at ${i}: ${version} in place of ${engine.versions[i - start]}`;
    }
  }
  if (mask.some((bit, i) => bit === 0 && (logprobs[i] !== 0 || versions[i] !== -1)))
    yield `a token that was not sampled has a logprob or version: ${row.trajectory}`;
}

const startsWith = (tokens: readonly number[], beginning: readonly number[]): boolean =>
  beginning.length <= tokens.length && beginning.every((id, i) => tokens[i] === id);
