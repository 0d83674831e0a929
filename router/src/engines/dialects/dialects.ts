import type { Dialect, DialectName } from '../../generation/dialect.ts';
import { completions } from './completions.ts';
import { generate } from './generate.ts';
import { inference } from './inference.ts';

/** The APIs whose requests have a prompt of text or ids, and whose responses have sampled tokens. */
export const dialects: Readonly<Record<DialectName, Dialect>> = { generate, completions, inference };

/** SkyRL's vLLM server (a956457): as vLLM's own path, but whole responses only, without counts, and with routed experts in a form of its own. */
export const SKYRL_PATH = '/skyrl/v1/generate';

const byPath = new Map(Object.values(dialects).map((dialect) => [dialect.path, dialect]));
byPath.set(SKYRL_PATH, inference);

/** @param target path and query @returns null: its responses are not understood */
export function dialectOf(target: string): Dialect | null {
  const query = target.indexOf('?');
  return byPath.get(query < 0 ? target : target.slice(0, query)) ?? null;
}
