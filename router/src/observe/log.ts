import { type DestinationStream, type Logger, pino } from 'pino';
import type { Config } from '../config/options.ts';
import { LineWriter } from './line-writer.ts';
import { type RotatingFile, standardTarget } from './log-targets.ts';

export type { Logger };

/** Level names of the SGLang router, with pino's. */
const levels = { debug: 'debug', info: 'info', warning: 'warn', error: 'error', critical: 'fatal' } as const;

/** The names for `--log-level`, by pino's names. */
const names: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(levels).map(([name, label]) => [label, name]),
);
const FLUSH_MS = 1_000;

export interface Log {
  readonly logger: Logger;
  droppedLines(): number;
  setLevel(level: Config['logLevel']): void;
  /** For log rotation by another process. */
  reopen(): void;
  close(): Promise<void>;
}

/** Logs to stdout and, if given, to files. @param format by default text on a terminal, JSON otherwise */
export function openLog(level: Config['logLevel'], files?: RotatingFile, format?: Config['logFormat']): Log {
  const stdout = new LineWriter(standardTarget(1), () => {});
  const writers = [stdout];
  if (files !== undefined) {
    writers.push(
      new LineWriter(files, (error) => logger.error({ error: error.message }, '--log-dir: log file not written')),
    );
  }
  const isText = (writer: LineWriter): boolean =>
    format === undefined ? writer === stdout && process.stdout.isTTY : format === 'text';
  const outputs = writers.map((writer) => ({ writer, isText: isText(writer) }));
  const stream: DestinationStream = {
    write(line) {
      for (const { writer, isText: asText } of outputs) writer.write(asText ? textLine(line) : line);
    },
  };
  const logger = pino(
    {
      level: levels[level],
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: names[label] ?? label }) },
    },
    stream,
  );
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

/** A log that the caller closes. */
export const givenLog = (logger: Logger): Log => ({
  logger,
  droppedLines: () => 0,
  setLevel: () => {},
  reopen: () => {},
  close: () => Promise.resolve(),
});

/** A log line as text: `2026-11-22T07:05:11.123Z WARNING request refused code=… worker=…`. @param json from pino */
export function textLine(json: string): string {
  // The fields of a plugin's line may have the same names.
  const { time, level, msg = '', ...fields } = JSON.parse(json) as Record<string, unknown>;
  const hasControls = typeof msg !== 'string' || CONTROL.test(msg);
  let text = `${String(time)} ${String(level).toUpperCase().padEnd(7)} ${hasControls ? quoted(msg) : msg}`;
  for (const [name, value] of Object.entries(fields)) text += ` ${name}=${shown(value)}`;
  return `${text}\n`;
}

/** Those of ASCII and of Latin-1, which terminals obey too. */
const CONTROL = /\p{Cc}/u;

/** Quoted if its end would be ambiguous; control characters are always escaped. */
const shown = (value: unknown): string =>
  typeof value === 'string' && /^[\w.:/@%~+-]+$/.test(value) ? value : quoted(value);

const quoted = (value: unknown): string =>
  (JSON.stringify(value) ?? 'null').replace(/[\x7f-\x9f]/g, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);
