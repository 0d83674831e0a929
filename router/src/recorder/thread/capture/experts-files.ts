import { createHash, randomBytes } from 'node:crypto';
import { closeSync, mkdirSync, openSync, readdirSync, renameSync, rmSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { isRunning } from '../../../config/folder-owner.ts';
import { type ProcessName, thisProcess } from '../../../config/process-name.ts';
import type { RoutedExperts } from '../../shared/turn.ts';
import type { ExpertsPiece } from '../../tap/experts-tap.ts';
import { type ExpertsDecoder, type TensorFacts, decoderOf } from './experts-decoder.ts';
import { TurnIds } from './turn-id.ts';

/** A tensor that is being written. */
interface Part {
  readonly decoder: ExpertsDecoder;
  /** -1: closed. */
  file: number;
  readonly path: string;
  bytes: number;
  /** null: it is not complete. */
  facts: TensorFacts | null;
}

const FOLDER = 'experts';
/** Folders of routers that may run elsewhere, in a container or on another machine, are removed when no tensor began there for this long. */
const STALE_MS = 86_400_000;

/** Writes tensors of routed experts to files of raw numbers as they arrive. Never throws, because turns wait for it. */
export class ExpertsFiles {
  /** Tensors, or parts of them, that could not be kept. */
  lost = 0;
  readonly #dataDir: string;
  /** The folder of incomplete files. */
  readonly #partDir: string;
  readonly #answers = new Map<number, Map<number, Part | null>>();
  readonly #ids = new TurnIds();

  constructor(dataDir: string) {
    this.#dataDir = dataDir;
    this.#partDir = join(dataDir, FOLDER, `.part-${process.pid}_${PLACE}_${randomBytes(6).toString('hex')}`);
    removeStale(join(dataDir, FOLDER));
  }

  /** A failed write is counted, and the tensor lost; also a value that is not a tensor. */
  take({ key, cut, form, bytes }: ExpertsPiece): void {
    let parts = this.#answers.get(key);
    if (parts === undefined) this.#answers.set(key, (parts = new Map()));
    let part = parts.get(cut);
    if (part === null) return;
    try {
      if (part === undefined) parts.set(cut, (part = this.#begin(key, cut, decoderOf(form))));
      const raw = part.decoder.push(bytes);
      for (let at = 0; at < raw.length;) at += writeSync(part.file, raw, at, raw.length - at);
      part.bytes += raw.length;
    } catch {
      this.lost++;
      parts.set(cut, null);
      if (part !== undefined) discard(part);
    }
  }

  /** @param description the JSON object that had the data; '': none */
  end(key: number, cut: number, description: string): void {
    const part = this.#answers.get(key)?.get(cut);
    if (part === undefined || part === null) return;
    const isClosed = close(part);
    const facts = part.decoder.end();
    if (facts === null || !isClosed) this.lost++;
    else part.facts = { ...facts, ...describedBy(description) };
  }

  /** Moves a tensor to its final place. null: it is missing or incomplete. */
  keep(key: number, cut: number): RoutedExperts | null {
    const part = this.#answers.get(key)?.get(cut);
    if (part === undefined || part === null || part.facts === null) return null;
    const id = this.#ids.next();
    // A folder for each 17 hours or so, because a folder of a million files is slow.
    const folder = join(FOLDER, id.slice(0, 4));
    const file = join(folder, `${id}.bin`);
    try {
      mkdirSync(join(this.#dataDir, folder), { recursive: true });
      renameSync(part.path, join(this.#dataDir, file));
    } catch {
      this.lost++;
      return null;
    }
    this.#answers.get(key)!.delete(cut);
    return { file, bytes: part.bytes, ...part.facts };
  }

  /** Removes the file of a turn that is not stored. */
  remove({ file }: RoutedExperts): void {
    remove(join(this.#dataDir, file));
  }

  /** Removes all files of a response that were not kept. */
  drop(key: number): void {
    for (const part of this.#answers.get(key)?.values() ?? []) if (part !== null) discard(part);
    this.#answers.delete(key);
  }

  close(): void {
    for (const key of this.#answers.keys()) this.drop(key);
    remove(this.#partDir);
  }

  #begin(key: number, cut: number, decoder: ExpertsDecoder): Part {
    const path = join(this.#partDir, `${key}-${cut}`);
    return { decoder, file: this.#open(path), path, bytes: 0, facts: null };
  }

  /** The folder is made for the first file, and again where something has removed it. */
  #open(path: string): number {
    try {
      return openSync(path, 'w', 0o600);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      mkdirSync(this.#partDir, { recursive: true });
      return openSync(path, 'w', 0o600);
    }
  }
}

/** @returns false: the write failed */
function close(part: Part): boolean {
  const { file } = part;
  part.file = -1;
  try {
    if (file >= 0) closeSync(file);
    return true;
  } catch {
    return false;
  }
}

function discard(part: Part): void {
  close(part);
  remove(part.path);
}

/** A file that can't be removed (the disk is read-only) stays: no turn fails for that. */
function remove(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch {
    // What could not be written was counted.
  }
}

/** The names that engines and their clients use: `{"data", "shape", "dtype"}`. */
function describedBy(description: string): Partial<TensorFacts> {
  if (description === '') return {};
  try {
    const { shape, dtype } = JSON.parse(description) as { shape?: unknown; dtype?: unknown };
    const isShape = Array.isArray(shape) && shape.every((size) => Number.isInteger(size));
    return {
      ...(isShape ? { shape: shape as number[] } : {}),
      ...(typeof dtype === 'string' ? { dtype: dtype.replace(/^(torch|np|numpy)\./, '') } : {}),
    };
  } catch {
    return {};
  }
}

/** Removes folders of incomplete files whose routers have ended: several may share a data folder during an upgrade. */
function removeStale(folder: string): void {
  try {
    for (const name of readdirSync(folder)) if (hasEnded(folder, name)) remove(join(folder, name));
  } catch {
    // There is no such folder yet.
  }
}

function hasEnded(folder: string, name: string): boolean {
  if (!name.startsWith('.part-')) return false;
  const [, pid, place] = /^\.part-(\d+)_(\w+)_/.exec(name) ?? [];
  // A process before this one may have had its id.
  if (place === PLACE && Number(pid) !== process.pid) return !isRunning(Number(pid));
  return Date.now() - (statSync(join(folder, name), { throwIfNoEntry: false })?.mtimeMs ?? Infinity) > STALE_MS;
}

/** Processes with the same one know each other by their ids. */
const PLACE = hashOfPlace(thisProcess());

function hashOfPlace({ host, boot, namespace }: ProcessName): string {
  const hash = createHash('sha256').update(JSON.stringify([host, boot, namespace]));
  return hash.digest('hex').slice(0, 12);
}
