import { createReadStream } from 'node:fs';
import { callTimes } from '../shared/turn.ts';

/** A request that was recorded, and what came of it then. */
export interface RecordedCall {
  /** The first of its turns. */
  readonly id: string;
  readonly session: string;
  /** The turns that it goes on from: of several prompts each its own. */
  readonly parents: readonly string[];
  readonly path: string;
  readonly startedAtMs: number;
  readonly body: Buffer;
  /** A turn each: of several prompts or choices (`n`), all that were exported. */
  readonly samples: readonly RecordedSample[];
}

export interface RecordedSample {
  readonly turn: string;
  readonly ids: readonly number[];
  /** It was truncated: more may have been sampled. */
  readonly isCut: boolean;
}

interface JsonTurn {
  readonly id: string;
  readonly parent: string | null;
  readonly path: string;
  readonly worker: string;
  readonly started_at_ms: number;
  readonly ttft_ms: number | null;
  readonly generation_ms: number;
  readonly sampled: readonly number[];
  readonly finish_reason?: string | null;
  readonly request?: string;
  readonly request_base64?: string;
}

export interface Recording {
  /** In the order in which they were asked. */
  readonly calls: readonly RecordedCall[];
  /** Turns whose request was not kept. */
  readonly withoutRequest: number;
}

/** Reads the requests of a JSONL export; one that several trajectories share is read once. Rejects with the line of an invalid one. */
export async function readRecording(file: string): Promise<Recording> {
  const turns = new Map<string, JsonTurn & { readonly session: string }>();
  let number = 0;
  for await (const line of linesOf(file)) {
    number++;
    if (line.trim() === '') continue;
    const { session, turns: list } = readLine(line, `${file}:${number}`);
    for (const turn of list) turns.set(turn.id, { ...turn, session });
  }
  const together = Map.groupBy(turns.values(), ({ path, worker, ...turn }) => {
    const times = { startedAtMs: turn.started_at_ms, ttftMs: turn.ttft_ms, generationMs: turn.generation_ms };
    return JSON.stringify([path, worker, callTimes(times)]);
  });
  const calls: RecordedCall[] = [];
  let withoutRequest = 0;
  for (const group of together.values()) {
    const own = group.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    // Of several samples of a prompt one may have it for all.
    const asked = own.find(({ request, request_base64: base64 }) => request !== undefined || base64 !== undefined);
    if (asked === undefined) {
      withoutRequest += own.length;
      continue;
    }
    const { session, path, started_at_ms: startedAtMs, request, request_base64: base64 } = asked;
    calls.push({
      id: own[0]!.id,
      session,
      parents: own.flatMap(({ parent }) => parent ?? []),
      path,
      startedAtMs,
      body: base64 === undefined ? Buffer.from(request!) : Buffer.from(base64, 'base64'),
      samples: own.map(({ id, sampled, finish_reason: finish }) => ({
        turn: id,
        ids: sampled,
        isCut: finish === 'abort' || finish === null,
      })),
    });
  }
  return { calls: calls.toSorted((a, b) => a.startedAtMs - b.startedAtMs), withoutRequest };
}

/** `readline` also ends lines at U+2028, which JSON has as it is. */
async function* linesOf(file: string): AsyncGenerator<string> {
  let parts: string[] = [];
  for await (const piece of createReadStream(file, { encoding: 'utf8', highWaterMark: 1_048_576 })) {
    const lines = (piece as string).split('\n');
    for (const [i, line] of lines.entries()) {
      if (i > 0) {
        yield parts.join('');
        parts = [];
      }
      parts.push(line);
    }
  }
  yield parts.join('');
}

function readLine(line: string, place: string): { session: string; turns: readonly JsonTurn[] } {
  let value = null as { session?: unknown; turns?: unknown } | null;
  try {
    value = JSON.parse(line) as typeof value;
  } catch {
    // Said below.
  }
  const isExported = Array.isArray(value?.turns) && value.turns.every(isTurn) && typeof value.session === 'string';
  if (!isExported) {
    throw new Error(`${place}: not a line of an export: make the file with turnout export --format jsonl`);
  }
  return value as { session: string; turns: readonly JsonTurn[] };
}

/** As far as a replay reads it. */
function isTurn(value: unknown): value is JsonTurn {
  const { id, path, started_at_ms: startedAtMs, sampled, request } = (value ?? {}) as Record<string, unknown>;
  return (
    typeof id === 'string' &&
    typeof path === 'string' &&
    path.startsWith('/') &&
    typeof startedAtMs === 'number' &&
    Array.isArray(sampled) &&
    (request === undefined || typeof request === 'string')
  );
}
