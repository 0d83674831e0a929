import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';

/** A request that was recorded, and what came of it then. */
export interface RecordedTurn {
  readonly id: string;
  readonly session: string;
  readonly parent: string | null;
  readonly path: string;
  readonly startedAtMs: number;
  readonly body: Buffer;
  readonly sampled: readonly number[];
}

interface JsonTurn {
  readonly id: string;
  readonly parent: string | null;
  readonly path: string;
  readonly started_at_ms: number;
  readonly sampled: readonly number[];
  readonly request?: string;
  readonly request_base64?: string;
}

export interface Recording {
  /** In the order in which they were asked. */
  readonly turns: readonly RecordedTurn[];
  /** Turns whose request was not kept. */
  readonly withoutRequest: number;
}

/** Reads the requests of a JSONL export, those that several trajectories share once. Rejects, naming the line, where it is none. */
export async function readRecording(file: string): Promise<Recording> {
  const turns = new Map<string, RecordedTurn | null>();
  let number = 0;
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
    number++;
    if (line.trim() === '') continue;
    const { session, turns: list } = readLine(line, `${file}:${number}`);
    for (const turn of list) {
      const { id, parent, path, started_at_ms: startedAtMs, sampled, request, request_base64: base64 } = turn;
      const body = base64 === undefined ? request : Buffer.from(base64, 'base64');
      const known =
        body === undefined ? null : { id, session, parent, path, startedAtMs, body: Buffer.from(body), sampled };
      turns.set(id, known);
    }
  }
  const all = [...turns.values()];
  const replayed = all.filter((turn) => turn !== null);
  return {
    turns: replayed.toSorted((a, b) => a.startedAtMs - b.startedAtMs),
    withoutRequest: all.length - replayed.length,
  };
}

function readLine(line: string, place: string): { session: string; turns: readonly JsonTurn[] } {
  let value = null as { session?: unknown; turns?: unknown } | null;
  try {
    value = JSON.parse(line) as typeof value;
  } catch {
    // Said below.
  }
  if (!Array.isArray(value?.turns) || typeof value.session !== 'string') {
    throw new Error(`${place}: not a line of an export: make the file with turnout export --format jsonl`);
  }
  return { session: value.session, turns: value.turns as JsonTurn[] };
}
