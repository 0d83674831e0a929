import type { Config } from '../config/options.ts';
import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { type AuthorizerParts, isForClients, isOpen, isSessionList } from './authorizer.ts';
import { hostTest } from './known-hosts.ts';

/** Content types that a page may send to any server without a preflight (the Fetch standard, section 2.2.2). */
const ASKS_NOBODY = /^(text\/plain|application\/x-www-form-urlencoded|multipart\/form-data)$/;

export interface PageGuardParts extends Pick<AuthorizerParts, 'isOwn' | 'isOfPluginForClients' | 'paths'> {
  readonly hasShownKey: (x: Exchange) => boolean;
}

/**
 * Refuses control requests that a web page sends through the browser of a user who can reach the router. Only requests without a valid
 * key are checked, because a browser adds no key.
 *
 * @returns the error of a request; null: allowed
 */
export function pageGuard(
  { host, adminHost, allowedHosts, corsAllowedOrigins }: Config,
  { isOwn, isOfPluginForClients, paths, hasShownKey }: PageGuardParts,
): (x: Exchange) => RouterError | null {
  const isKnownDataHost = hostTest(host, allowedHosts);
  const isKnownAdminHost = hostTest(adminHost, allowedHosts);
  const origins = new Set(corsAllowedOrigins.map((origin) => origin.toLowerCase()));

  const isOfForeignPage = (head: RequestHead): boolean => {
    const site = head.get('sec-fetch-site');
    const origin = head.get('origin')?.toLowerCase();
    if (origin !== undefined && (origins.has(origin) || origins.has('*'))) return false;
    // Browsers send `sec-fetch-site` to https and loopback addresses. Behind a proxy the Host may differ from the page's.
    if (site !== undefined) return site !== 'same-origin' && site !== 'none';
    return origin !== undefined && origin.replace(/^https?:\/\//, '') !== head.get('host')?.toLowerCase();
  };
  return (x) => {
    const { path, head } = x;
    const isGuarded = isOwn(path)
      ? !isOpen(path) && (!isOfPluginForClients(path) || isSessionList(path, head.method))
      : paths.of(path, head.method).needsAdmin;
    if (!isGuarded || head.isTrusted || hasShownKey(x)) return null;
    const isKnownHost = head.isOnAdminPort ? isKnownAdminHost : isKnownDataHost;
    if (isKnownHost !== null && !isKnownHost(head.get('host'))) {
      return new RouterError(
        'foreign_page',
        'The Host of the request is not a name of this router: add it to --allowed-hosts, or use localhost or the address.',
      );
    }
    if (isOfForeignPage(head)) {
      return new RouterError(
        'foreign_page',
        'A web page of another origin sent the request: add the origin to --cors-allowed-origins if it may control the router.',
      );
    }
    return isForClients(path) ? null : formBody(head);
  };
}

/** The type is optional for programs; pages are refused by their origin. */
function formBody(head: RequestHead): RouterError | null {
  const hasBody = head.isChunked || head.contentLength > 0;
  const type = hasBody ? (head.get('content-type') ?? '').split(';', 1)[0]!.trim().toLowerCase() : '';
  if (!ASKS_NOBODY.test(type)) return null;
  const message = `This endpoint takes JSON, not ${type}: send "content-type: application/json" (curl: -H 'content-type: application/json').`;
  return new RouterError('not_json', message);
}
