import { createHash, randomBytes } from 'node:crypto';

const ID = /^[0-9a-f]{32}$/;

/** Four bytes that follow from the others. */
const checkOf = (random: string): string =>
  createHash('sha256').update(`chat session ${random}`).digest('hex').slice(0, 8);

export function newSessionId(): string {
  const random = randomBytes(12).toString('hex');
  return random + checkOf(random);
}

/** The error for the name of a session that never began, or is over. */
export const noSuchSession = (session: string): string =>
  `There is no session '${session}': POST /sessions begins one.`;

/**
 * Whether it is an id that a router gave out, this one or one before it: so a session without turns needs no place in a store to
 * be known after a restart.
 */
export const isSessionId = (id: string): boolean => ID.test(id) && checkOf(id.slice(0, 24)) === id.slice(24);
