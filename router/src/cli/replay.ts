import { ConfigError } from '../config/load.ts';
import { type RecordedCall, type Recording, readRecording } from '../recorder/replay/recording.ts';
import { type Replayed, type Verdict, replay } from '../recorder/replay/replay.ts';
import { printable } from './columns.ts';
import { showProgress } from './progress.ts';

export interface ReplayFlags {
  readonly against: string;
  readonly asFastAsPossible?: boolean;
  readonly concurrency: string;
  readonly apiKey?: string;
}

/** Turns with a different result that are listed. */
const NAMED = 10;

/**
 * Sends the requests of an export again and reports different results.
 * @param print prints a line of the result
 * @returns the exit code: 0 if all comparable turns are the same
 */
export async function replayFile(file: string, flags: ReplayFlags, print: (line: string) => void): Promise<number> {
  const against = URL.parse(flags.against);
  if (against === null || !/^https?:$/.test(against.protocol)) {
    throw new ConfigError(`--against ${flags.against}: the http:// or https:// address of a router or engine`);
  }
  const concurrency = Number(flags.concurrency);
  if (!Number.isInteger(concurrency) || concurrency < 1) throw new ConfigError('--concurrency: a number from 1');
  let recording: Recording;
  try {
    recording = await readRecording(file);
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
  const { calls, withoutRequest } = recording;
  if (calls.length === 0) throw new ConfigError(`${file}: no requests in it (${withoutRequest} turns without)`);
  const counts: Record<Verdict['kind'], number> = { same: 0, different: 0, failed: 0, 'not comparable': 0 };
  const all: Replayed[] = [];
  const times = calls.map(({ startedAtMs }) => startedAtMs).toSorted((a, b) => a - b);
  let sent = 0;
  /** At recorded times there can be nothing to see for long. */
  const nextDue = (): string => {
    const next = times[sent];
    if (flags.asFastAsPossible === true || next === undefined || all.length < sent) return '';
    const secs = (next - times[0]! - (performance.now() - startMs)) / 1_000;
    return secs < 1 ? '' : `; the next request is due in ${Math.round(secs)} s`;
  };
  const startMs = performance.now();
  const progress = showProgress(() => {
    const text = `${all.length}/${calls.length}, ${counts.different} different, ${counts.failed} failed${nextDue()}`;
    return { replay: { done: all.length, total: calls.length, text } };
  });
  try {
    const options = { against, concurrency: flags.asFastAsPossible === true ? concurrency : null };
    await replay(
      calls,
      flags.apiKey === undefined ? options : { ...options, apiKey: flags.apiKey },
      (replayed) => {
        counts[replayed.verdict.kind]++;
        all.push(replayed);
      },
      () => void sent++,
    );
  } finally {
    progress.stop();
  }
  const secs = (performance.now() - startMs) / 1_000;
  for (const line of summary(all, counts, secs)) print(line);
  if (withoutRequest > 0) print(`${withoutRequest} turns of the file have no request and were skipped`);
  if (counts.same + counts.different === 0 && counts['not comparable'] > 0)
    print('nothing could be compared: the responses or the recording have no token ids');
  return counts.same > 0 && counts.different + counts.failed === 0 ? 0 : 1;
}

function summary(all: readonly Replayed[], counts: Record<Verdict['kind'], number>, secs: number): string[] {
  const tokens = all.reduce((sum, each) => sum + each.tokens, 0);
  const answered = all.filter(({ verdict }) => verdict.kind !== 'failed');
  const odd = all.filter(({ verdict }) => verdict.kind === 'different' || verdict.kind === 'failed');
  return [
    `${all.length} requests in ${secs.toFixed(1)} s: ${(all.length / secs).toFixed(1)} requests/s, ${Math.round(tokens / secs)} tokens/s`,
    Object.entries(counts)
      .map(([kind, count]) => `${kind} ${count}`)
      .join(', '),
    `first byte ${times(answered.map(({ ttftMs }) => ttftMs))}; whole answer ${times(answered.map(({ totalMs }) => totalMs))}`,
    ...odd
      .slice(0, NAMED)
      .map(
        ({ call, verdict }) => `  ${turnOf(call, verdict)} of session ${printable(call.session)}: ${worded(verdict)}`,
      ),
    ...(odd.length > NAMED ? [`  and ${odd.length - NAMED} more`] : []),
  ];
}

const turnOf = ({ id }: RecordedCall, verdict: Verdict): string => (verdict.kind === 'different' ? verdict.turn : id);

function worded(verdict: Verdict): string {
  if (verdict.kind === 'failed') return `failed: ${verdict.reason}`;
  if (verdict.kind !== 'different') return verdict.kind;
  const word = (id: number): string => (id < 0 ? 'its end' : String(id));
  return `sampled token ${verdict.at} was ${word(verdict.recorded)}, is ${word(verdict.now)}`;
}

function times(ms: readonly number[]): string {
  if (ms.length === 0) return '-';
  const sorted = ms.toSorted((a, b) => a - b);
  const at = (share: number): string =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!.toFixed(0);
  return `${at(0.5)} ms (p50), ${at(0.95)} ms (p95)`;
}
