import { boundedKey } from '../../classify/routing-keys.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import type { RequestHead } from '../../wire/request-head.ts';

/** Names the worker of a request. */
const TARGET_HEADER = 'x-turnout-worker';
/** Query parameters that name workers. */
const OWN_PARAMETERS: ReadonlySet<string> = new Set(['worker', 'session', 'group']);

/** The workers that the client names. */
export type Address =
  | { readonly target: Worker; readonly isForEngine: boolean }
  | { readonly audience: readonly Worker[] };

export interface AddressBook {
  readonly fleet: Fleet;
  /** The workers of a session; null: the policy keeps no sessions. */
  readonly homesOf: (session: string) => readonly Worker[] | null;
}

/**
 * Reads the workers that the client names, and removes the names from what engines get. null: it names none.
 *
 * @param hasQuery whether the query may name workers, as that of control requests
 */
export function addressOf(head: RequestHead, book: AddressBook, hasQuery: boolean): Address | RouterError | null {
  const named: [string, string][] = [];
  const header = head.get(TARGET_HEADER);
  if (header !== undefined) named.push(['worker', header]);
  if (hasQuery && head.target.includes('?')) {
    const problem = takeParameters(head, named);
    if (problem !== null) return problem;
  }
  if (named.length === 0) return null;
  if (named.length > 1) return new RouterError('bad_request', 'Specify exactly one of worker, session or group.');
  head.drop(TARGET_HEADER);
  const [kind, value] = named[0]!;
  if (kind === 'worker') return targetOf(value, book.fleet);
  return kind === 'group' ? groupOf(value, book.fleet) : sessionOf(value, book);
}

/** All other parameters stay as they are. */
function takeParameters(head: RequestHead, named: [string, string][]): RouterError | null {
  const at = head.target.indexOf('?');
  const left: string[] = [];
  for (const pair of head.target.slice(at + 1).split('&')) {
    const equals = pair.indexOf('=');
    const name = equals < 0 ? pair : pair.slice(0, equals);
    if (!OWN_PARAMETERS.has(name)) {
      left.push(pair);
      continue;
    }
    try {
      named.push([name, equals < 0 ? '' : decodeURIComponent(pair.slice(equals + 1).replaceAll('+', ' '))]);
    } catch {
      return new RouterError('bad_request', `The value of "${name}" in the query is not percent-encoded UTF-8.`);
    }
  }
  if (named.length > 0) head.target = head.target.slice(0, at) + (left.length === 0 ? '' : `?${left.join('&')}`);
  return null;
}

function targetOf(value: string, fleet: Fleet): Address | RouterError {
  const worker = fleet.workers.find(({ id }) => id === value) ?? fleet.get(value);
  if (worker !== undefined) return { target: worker, isForEngine: false };
  // The lookbehind makes the search linear in the number of slashes.
  const named = value.replace(/(?<!\/)\/+$/, '');
  const rank = fleet.workers.find(({ engineUrl }) => engineUrl === named);
  if (rank !== undefined) return { target: rank, isForEngine: true };
  return new RouterError('worker_not_found', 'No worker has this URL or id: see GET /workers.');
}

function groupOf(value: string, fleet: Fleet): Address | RouterError {
  const audience = fleet.workers.filter(({ labels }) => labels['group'] === value);
  if (audience.length > 0) return { audience };
  return new RouterError('worker_not_found', 'No worker has this group label (see POST /workers).');
}

function sessionOf(value: string, { homesOf }: AddressBook): Address | RouterError {
  const audience = homesOf(boundedKey(value));
  if (audience === null) {
    return new RouterError(
      'session_not_found',
      'The policy keeps no sessions, so the worker of this session is not known.',
    );
  }
  if (audience.length > 0) return { audience };
  return new RouterError('session_not_found', 'No worker has this session.');
}
