import { rename, stat } from 'node:fs/promises';
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { boundedKey } from '../classify/routing-keys.ts';
import { ConfigError } from '../config/load.ts';
import { type ExportFormat, formatNames } from '../recorder/shared/export-formats.ts';
import { exportBytes } from '../recorder/thread/export/formats.ts';
import { type ExportProgress, noProgress } from '../recorder/thread/export/walk.ts';
import { readSince } from '../recorder/tap/since.ts';
import { openToRead } from '../recorder/thread/store/open.ts';
import type { TrajectoryStore } from '../recorder/thread/store/store.ts';
import { showProgress } from './progress.ts';

type TextFlag = 'session' | 'group' | 'tenant' | 'since' | 'version' | 'minReward' | 'maxReward' | 'label';

export interface ExportFlags extends Readonly<Partial<Record<TextFlag | 'dataDir' | 'store' | 'output', string>>> {
  readonly format: string;
  readonly finished?: boolean;
  readonly unfinished?: boolean;
}

/** Other errors are those of files, pipes and stores. */
const BUGS = [TypeError, RangeError, ReferenceError, SyntaxError] as const;

/** Exports trajectories from a store, which a router may be writing to. */
export async function exportTrajectories(flags: ExportFlags): Promise<void> {
  const { format, tenant, version, label, output } = flags;
  if (!formatNames.includes(format as ExportFormat)) {
    throw new ConfigError(`--format ${format}: one of ${formatNames.join(', ')}`);
  }
  const sinceMs = flags.since === undefined ? undefined : readSince(flags.since, Date.now());
  if (Number.isNaN(sinceMs)) {
    throw new ConfigError(`--since ${flags.since}: a time (2026-11-21T10:00:00Z, Unix seconds) or how long ago (90m)`);
  }
  if (flags.finished === true && flags.unfinished === true) {
    throw new ConfigError('--finished and --unfinished: no session is both');
  }
  const finished = flags.finished ?? (flags.unfinished === true ? false : undefined);
  const [minReward, maxReward] = [rewardOf('--min-reward', flags.minReward), rewardOf('--max-reward', flags.maxReward)];
  if (output === undefined && process.stdout.isTTY && format !== 'jsonl') {
    throw new ConfigError(`${format} is not for terminals: name a file with -o, or pipe it`);
  }
  const place = output === undefined ? null : await stat(output).catch(() => null);
  if (place?.isDirectory() === true) throw new ConfigError(`-o ${output}: it is a folder, name a file in it`);
  const isDevice = place !== null && !place.isFile();
  const dataDir = flags.dataDir ?? process.env['TURNOUT_DATA_DIR'] ?? null;
  let store: TrajectoryStore;
  try {
    store = await openToRead(flags.store ?? process.env['TURNOUT_STORE'] ?? null, dataDir);
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
  const [session, group] = [flags.session, flags.group].map((name) => name && boundedKey(name));
  const given = { session, group, tenant, version, sinceMs, finished, minReward, maxReward, label };
  const query = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const progress = noProgress();
  const shown = showProgress(() => ({ export: { done: 0, total: null, text: `${describe(progress)} …` } }));
  // A temporary name until the export is complete, so that a partial one is not taken for it. Not for devices and
  // pipes.
  const path = output === undefined || isDevice ? output : `${output}.part`;
  const file = path === undefined ? null : createWriteStream(path);
  const target: Writable = file ?? process.stdout;
  // Each write rejects by itself; the stream's own error event needs a listener too.
  target.on('error', () => {});
  try {
    if (file !== null) await once(file, 'open');
    for await (const bytes of await exportBytes(store, { format: format as ExportFormat, query, dataDir }, progress)) {
      await write(target, bytes);
    }
    if (file !== null) {
      file.end();
      await once(file, 'close');
      if (path !== output) await rename(path!, output!);
    }
  } catch (error) {
    if (BUGS.some((type) => error instanceof type)) throw error;
    // A write to a stream that has failed says only that.
    const { code, message } = (target.errored ?? error) as NodeJS.ErrnoException;
    const reason = code === 'EPIPE' ? 'the process that reads the output has ended' : message;
    throw new ConfigError(`the export is incomplete: ${reason}`);
  } finally {
    shown.stop();
    file?.destroy();
    await store.close();
  }
  shown.say(`export: ${describe(progress)}${output === undefined ? '' : `, in ${output}`}`);
  for (const [reason, count] of Object.entries(progress.leftOut)) shown.say(`export: ${count} left out: ${reason}`);
  const { unreadable } = progress;
  if (unreadable > 0)
    shown.say(
      `export: ${unreadable} turns have a stored request or response that can't be read ("unreadable" names it)`,
    );
}

function rewardOf(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const reward = text.trim() === '' ? NaN : Number(text);
  if (Number.isNaN(reward)) throw new ConfigError(`${flag} ${text}: a number`);
  return reward;
}

/** Resolves when the stream can take more; rejects if the write fails. */
function write(target: Writable, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    target.write(bytes, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}

const describe = ({ sessions, trajectories, tokens }: ExportProgress): string =>
  `${trajectories} trajectories of ${sessions} sessions, ${tokens} tokens`;
