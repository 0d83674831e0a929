import { type ControlPaths, pathsDecidedByBody } from '../engines/controls.ts';
import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import { type Plugin, Refused } from '../plugin.ts';
import { type RequestHead, NONE, SEVERAL } from '../wire/request-head.ts';
import { type KeySet, digestOf } from './keys.ts';
import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';

/** Own endpoints for probes, which have no keys. */
const openPaths: ReadonlySet<string> = new Set(['/health', '/liveness', '/readiness']);
/** The page and its files have no data of the router; the feed needs a key. */
const isPage = (path: string): boolean => path === '/dashboard' || path.startsWith('/dashboard/assets/');
/** Own endpoints that control nothing and reveal nothing. */
export const isOpen = (path: string): boolean => openPaths.has(path) || isPage(path);
/** Own endpoints that clients use for their own work. */
export const isForClients = (path: string): boolean =>
  path === '/finish_session' || path.startsWith('/sessions/') || /^\/trajectories(\/|$)/.test(path);

/** The list of the sessions of all clients. A plugin may serve POST of this path to clients. */
export const isSessionList = (path: string, method: string): boolean => path === '/sessions' && method !== 'POST';

/** Whether the body decides if the request needs an admin key, and is small enough to be read. */
function accessDependsOnBody({ path, head }: Exchange): boolean {
  if (!pathsDecidedByBody.has(path)) return false;
  return head.isChunked || (head.contentLength > 0 && head.contentLength <= MAX_ABORT_BYTES);
}

export interface AuthorizerParts {
  readonly dataKeys: KeySet;
  readonly adminKeys: KeySet;
  readonly hasAdminPort: boolean;
  readonly isOwn: (path: string) => boolean;
  readonly isOfPluginForClients: (path: string) => boolean;
  readonly paths: ControlPaths;
}

/** Checks the key of every request, by the normal form of its path; removes the router's own keys from the head. */
export class Authorizer {
  readonly #parts: AuthorizerParts;

  constructor(parts: AuthorizerParts) {
    this.#parts = parts;
  }

  /** For requests whose access depends on the body. */
  readonly bodyGuard: Plugin = {
    name: 'access',
    // An abort without a body aborts all requests.
    takesEmptyBodies: true,
    appliesTo: (x: Exchange) => accessDependsOnBody(x) && this.#controlDenialOf(x) !== null,
    requestBody: (x: Exchange, body: Buffer) => {
      const denial = affectsOthers(x.path, body) ? this.#controlDenialOf(x) : null;
      if (denial !== null) throw new Refused(denial);
      return body;
    },
  };

  /** Called after `denialOf` allowed the request. @returns whether the request has a valid key */
  hasShownKey({ keyDigest, seesAllTenants }: Exchange): boolean {
    return keyDigest !== null || (this.#hasKeys && seesAllTenants);
  }

  /** Whether the client may control the router. Others are not told the addresses of workers. */
  mayControl(x: Exchange): boolean {
    return this.#controlDenialOf(x) === null;
  }

  /** @returns why the request is refused; null: it is allowed */
  denialOf(x: Exchange): RouterError | null {
    const { head } = x;
    if (this.#hasKeys && (head.authorizationAt === SEVERAL || head.apiKeyAt === SEVERAL)) {
      // The router might check one of them and the engine another.
      return new RouterError(
        'unauthorized',
        'The request carries several API keys: send one "authorization: Bearer KEY".',
      );
    }
    const caller = this.#callerOf(head);
    // A dispatched request may act for a client without the key.
    x.keyDigest ??= caller.keyDigest;
    x.seesAllTenants = caller.holdsAdminKey || !this.#hasKeys;
    return this.#decide(this.#areaOf(x), caller);
  }

  get #hasKeys(): boolean {
    return !this.#parts.dataKeys.isEmpty || !this.#parts.adminKeys.isEmpty;
  }

  #areaOf(x: Exchange): Area {
    const { path, head } = x;
    if (openPaths.has(path)) return 'open';
    if (path === '/metrics' || path === '/engine_metrics') return 'metrics';
    if (path === '/openapi.json') return 'data';
    if (isSessionList(path, head.method)) return 'admin';
    if (this.#parts.isOwn(path)) {
      if (isPage(path)) return 'open';
      return isForClients(path) || this.#parts.isOfPluginForClients(path) ? 'data' : 'admin';
    }
    return this.#parts.paths.of(path, head.method).needsAdmin && !accessDependsOnBody(x) ? 'admin' : 'data';
  }

  #controlDenialOf({ head }: Exchange): RouterError | null {
    return this.#decide('admin', this.#callerOf(head));
  }

  #decide(area: Area, caller: Caller): RouterError | null {
    const { dataKeys, adminKeys, hasAdminPort } = this.#parts;
    const rules: Rules = { hasDataKeys: !dataKeys.isEmpty, hasAdminKeys: !adminKeys.isEmpty, hasAdminPort };
    return decide(area, rules, caller);
  }

  /** Removes the lines of the router's own keys from the head: engines must not get them. Other keys pass. */
  #callerOf(head: RequestHead): Caller & { readonly keyDigest: Buffer | null } {
    const caller = {
      holdsDataKey: false,
      holdsAdminKey: head.isTrusted,
      isOnAdminPort: head.isOnAdminPort || head.isTrusted,
      keyDigest: null as Buffer | null,
    };
    if (!this.#hasKeys) return caller;
    const check = (lineAt: number, key: string): void => {
      if (key === '') return;
      const digest = digestOf(key);
      const isData = this.#parts.dataKeys.has(digest);
      const isAdmin = this.#parts.adminKeys.has(digest);
      if (isData || isAdmin) head.dropLineAt(lineAt);
      if (isData) {
        caller.holdsDataKey = true;
        caller.keyDigest = digest;
      }
      if (isAdmin) caller.holdsAdminKey = true;
    };
    const { authorizationAt, apiKeyAt } = head;
    if (authorizationAt > NONE) check(authorizationAt, bearerToken(head.valueAt(authorizationAt)));
    if (apiKeyAt > NONE) check(apiKeyAt, head.valueAt(apiKeyAt));
    return caller;
  }
}

/** @returns the token of `Bearer TOKEN` (RFC 6750 section 2.1; the scheme in any case), '' for anything else. */
function bearerToken(value: string): string {
  return value.slice(0, 7).toLowerCase() === 'bearer ' ? value.slice(7).trim() : '';
}

export type Area =
  /** Needs no key: probes have none. */
  | 'open'
  /** For holders of any key, if there are keys. */
  | 'metrics'
  | 'data'
  /** Controls the router or engines. */
  | 'admin';

interface Rules {
  readonly hasDataKeys: boolean;
  readonly hasAdminKeys: boolean;
  /** Control requests have a port of their own. */
  readonly hasAdminPort: boolean;
}

interface Caller {
  readonly holdsDataKey: boolean;
  readonly holdsAdminKey: boolean;
  readonly isOnAdminPort: boolean;
}

/**
 * With `--api-key` only, that key is needed for everything; with `--admin-api-key` only, for control requests. With both, control
 * requests need an admin key, which is also valid for everything else. @returns null: allowed
 */
export function decide(area: Area, rules: Rules, caller: Caller): RouterError | null {
  if (area === 'open') return null;
  if (area === 'admin' && rules.hasAdminPort && !caller.isOnAdminPort) {
    return new RouterError('forbidden', 'This endpoint is only served on the admin port (--admin-port).');
  }
  if (caller.holdsAdminKey) return null;
  if (area === 'admin' && rules.hasAdminKeys) return caller.holdsDataKey ? needsAdminKey() : needsKey();
  const isGuarded = rules.hasDataKeys || (area === 'metrics' && rules.hasAdminKeys);
  return !isGuarded || caller.holdsDataKey ? null : needsKey();
}

const needsKey = (): RouterError =>
  new RouterError('unauthorized', 'A valid API key is required: send "authorization: Bearer KEY".');

const needsAdminKey = (): RouterError =>
  new RouterError(
    'forbidden',
    'This endpoint controls the router or engines: it requires an admin key (--admin-api-key).',
  );

/** SGLang aborts by the beginning of an id, so shorter ones could be tried one after the other. Its own ids have 32 hexadecimal digits. */
const MIN_RID_CHARS = 8;

/** Larger bodies are not read: the ids of a client's own requests take less. */
const MAX_ABORT_BYTES = 65_536;

const finder = new MemberFinder(['abort_all', 'rid', 'request_ids']);
const spans = new Int32Array(6);

/**
 * Whether an abort affects, or may affect, more than the requests that its body names.
 *
 * SGLang 0.5.23 (/abort_request) aborts all requests with `abort_all`, and every request whose id begins with `rid`: a short `rid`
 * matches those of many clients. vLLM 0.32.0 (/abort_requests) aborts all requests if `request_ids` is missing or empty. A body that can't be read here
 * counts as an abort of all requests: the engine may be able to read it (Python's JSON reader accepts UTF-16).
 */
export function affectsOthers(path: string, body: Buffer): boolean {
  if (body.length > MAX_ABORT_BYTES || finder.find(body, 0, body.length, spans) < 0) return true;
  const has = (member: number): boolean => spans[2 * member]! >= 0;
  const start = (member: number): number => spans[2 * member]!;
  const end = (member: number): number => spans[2 * member + 1]!;
  if (path !== '/abort_request') return !has(2) || !namesRequests(body, start(2), end(2));
  // Pydantic reads 1, "yes" and other values as true.
  if (has(0) && body.toString('latin1', start(0), end(0)) !== 'false') return true;
  return !has(1) || (readString(body, start(1), end(1)) ?? '').length < MIN_RID_CHARS;
}

const isEmptyOrNone = (text: string | null): boolean => text === null || text === '';

/** Whether the value is a list of ids: at least one, none of them empty. */
function namesRequests(body: Buffer, start: number, end: number): boolean {
  let count = 0;
  const scanned = scanItems(body, start, end, (itemStart, itemEnd) => {
    if (isEmptyOrNone(readString(body, itemStart, itemEnd))) return false;
    count++;
    return true;
  });
  // At an item that is not an id the scan stops before the end of the list.
  return scanned === end && count > 0;
}
