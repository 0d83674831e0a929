import { pino } from 'pino';
import type { Logger } from '../../src/observe/log.ts';

export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

/** A log that keeps its lines. */
export function recordedLog(level = 'debug'): { log: Logger; lines: LogLine[]; of(msg: string): LogLine[] } {
  const lines: LogLine[] = [];
  const log = pino({ level }, { write: (text: string) => void lines.push(JSON.parse(text) as LogLine) });
  return { log, lines, of: (msg) => lines.filter((line) => line.msg === msg) };
}
