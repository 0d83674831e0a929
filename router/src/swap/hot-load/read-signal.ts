import * as z from 'zod';
import { IDENTITY } from '../../config/options/swap.ts';
import type { Reset } from '../ledger.ts';

/** A snapshot that is sent as its difference from an earlier one. */
export interface Delta {
  readonly previous: string;
  readonly compression: string;
  readonly checksum: string;
}

export interface HotLoadSignal {
  readonly identity: string;
  readonly reset: Reset;
  /** null: the snapshot is complete. */
  readonly delta: Delta | null;
}

/** One segment of a path. */
const identity = z.string().regex(IDENTITY, 'must be made of A-Z, a-z, 0-9, ".", "_" and "-", and not be "." or ".."');

const schema = z.strictObject({
  identity,
  // The SDK types it as a bool, and sends it always (fireworks-ai 1.2.28, DeploymentManager.hotload).
  reset_prompt_cache: z
    .union([z.enum(['all', 'new_session', 'none']), z.boolean()], {
      error: 'must be all, new_session, none, true or false',
    })
    .default('all'),
  incremental_snapshot_metadata: z
    .strictObject({
      previous_snapshot_identity: identity,
      compression_format: z.string().default('arc_v2'),
      // Spelled this way on the wire.
      checksum_format: z.string().default('alder32'),
    })
    .nullish(),
  // Fields of config.json that Fireworks ignores when it compares configs. Engines compare none.
  validation: z.strictObject({ extra_fields_ignore: z.array(z.string()).optional() }).nullish(),
});

const resets = { true: 'all', false: 'none' } as const;

/** @returns what is wrong with the body, in words for the client, in the form that clients match */
export function readSignal(text: string): HotLoadSignal | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `The body is not JSON: ${(error as Error).message}`;
  }
  const read = schema.safeParse(value);
  if (!read.success) return problemOf(read.error.issues);
  const { identity: target, reset_prompt_cache: reset, incremental_snapshot_metadata: metadata } = read.data;
  return {
    identity: target,
    reset: typeof reset === 'boolean' ? resets[`${reset}`] : reset,
    delta: metadata
      ? {
          previous: metadata.previous_snapshot_identity,
          compression: metadata.compression_format,
          checksum: metadata.checksum_format,
        }
      : null,
  };
}

function problemOf(issues: readonly z.core.$ZodIssue[]): string {
  for (const issue of issues) {
    if (issue.code !== 'unrecognized_keys') continue;
    return `Extra inputs are not permitted, field: '${[...issue.path, issue.keys[0]].join('.')}'`;
  }
  const { path, message, code } = issues[0]!;
  const field = path.length === 0 ? 'The body' : path.join('.');
  const isMissing = code === 'invalid_type' && message.endsWith('received undefined');
  return isMissing ? `Field required, field: '${field}'` : `${field}: ${message}`;
}
