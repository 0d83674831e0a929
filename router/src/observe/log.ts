import { type DestinationStream, type Logger, pino } from 'pino';
import type { Config } from '../config/options.ts';
import { LineWriter } from './line-writer.ts';
import { type RotatingFile, standardTarget } from './log-targets.ts';

export type { Logger };

/** The level names of the SGLang router, in pino's words. */
const levels = { debug: 'debug', info: 'info', warning: 'warn', error: 'error', critical: 'fatal' } as const;

/** So long the last lines may take. */
const FLUSH_MS = 1_000;

/** The log and where its lines go. */
export interface Log {
  readonly logger: Logger;
  droppedLines(): number;
  setLevel(level: Config['logLevel']): void;
  /** Files may have been moved by others. */
  reopen(): void;
  close(): Promise<void>;
}

/** Lines to the standard output and, where there are any, to files. */
export function openLog(level: Config['logLevel'], files?: RotatingFile): Log {
  const writers = [new LineWriter(standardTarget(1), () => {})];
  if (files !== undefined) {
    writers.push(new LineWriter(files, (error) => logger.error({ error: error.message }, '--log-dir: not written')));
  }
  const stream: DestinationStream = {
    write(line) {
      for (const writer of writers) writer.write(line);
    },
  };
  const logger = pino({ level: levels[level], base: null, timestamp: pino.stdTimeFunctions.isoTime }, stream);
  const flushSync = (): void => {
    for (const writer of writers) writer.flushSync();
  };
  process.on('exit', flushSync);
  return {
    logger,
    droppedLines: () => writers.reduce((sum, { droppedLines }) => sum + droppedLines, 0),
    setLevel(next) {
      logger.level = levels[next];
    },
    reopen: () => files?.reopen(),
    async close() {
      await Promise.all(writers.map((writer) => writer.close(FLUSH_MS)));
      process.removeListener('exit', flushSync);
    },
  };
}

/** A log that somebody else made and looks after. */
export const givenLog = (logger: Logger): Log => ({
  logger,
  droppedLines: () => 0,
  setLevel: () => {},
  reopen: () => {},
  close: () => Promise.resolve(),
});
