import type { Random } from '../../../src/kit/rng.ts';

/** What an engine may do to one request, and how often of a thousand. */
const faults = {
  /** Reads it all and resets. */
  reset_before: 12,
  /** Reads it all and ends the connection without a word. */
  close_before: 12,
  reset_in_head: 8,
  reset_in_chunk: 15,
  /** Ends the connection as if all was said: only the missing last chunk tells. */
  close_between_chunks: 15,
  /** Promises more bytes than it sends. */
  too_short: 12,
  /** Sends more bytes than it promised. */
  too_long: 8,
  bad_status: 30,
  garbage: 6,
  /** Answers before it has read the request, and closes. */
  early: 8,
  stall_before: 4,
  stall_inside: 6,
  /** A few bytes at a time. */
  drip: 15,
  /** Answers, and closes the kept connection a moment later without having said so. */
  close_after: 40,
  until_close: 15,
} as const;

export type Fault = keyof typeof faults | 'none';

export function drawFault(random: Random, scale: number): Fault {
  let at = random() * 1000;
  for (const [name, share] of Object.entries(faults)) {
    at -= share * scale;
    if (at < 0) return name as Fault;
  }
  return 'none';
}
