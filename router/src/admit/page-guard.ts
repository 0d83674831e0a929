import type { Config } from '../config/options.ts';
import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { type AuthorizerParts, isForClients, isOpen } from './authorizer.ts';
import { type HostTest, hostTest } from './known-hosts.ts';

/** Content types that a page may send to any server without a preflight (the Fetch standard, section 2.2.2). */
const ASKS_NOBODY = /^(text\/plain|application\/x-www-form-urlencoded|multipart\/form-data)$/;

export interface PageGuardParts extends Pick<AuthorizerParts, 'isOwn' | 'isOfPluginForClients' | 'paths'> {
  readonly hasShownKey: (x: Exchange) => boolean;
}

/**
 * Refuses control requests that a web page sends through the browser of a user who can reach the router. Only requests without a valid
 * key are checked, because a browser adds no key.
 */
export class PageGuard {
  readonly #parts: PageGuardParts;
  readonly #isKnownHost: HostTest | null;
  readonly #isKnownAdminHost: HostTest | null;
  readonly #origins: ReadonlySet<string>;

  constructor({ host, adminHost, allowedHosts, corsAllowedOrigins }: Config, parts: PageGuardParts) {
    this.#parts = parts;
    this.#isKnownHost = hostTest(host, allowedHosts);
    this.#isKnownAdminHost = hostTest(adminHost, allowedHosts);
    this.#origins = new Set(corsAllowedOrigins.map((origin) => origin.toLowerCase()));
  }

  /** @returns null: allowed */
  denialOf(x: Exchange): RouterError | null {
    const { path, head } = x;
    const { isOwn, isOfPluginForClients, paths, hasShownKey } = this.#parts;
    const isGuarded = isOwn(path)
      ? !isOpen(path) && !isOfPluginForClients(path)
      : paths.of(path, head.method).needsAdmin;
    if (!isGuarded || head.isTrusted || hasShownKey(x)) return null;
    return this.#foreignPage(head) ?? (isForClients(path) ? null : formBody(head));
  }

  #foreignPage(head: RequestHead): RouterError | null {
    const isKnownHost = head.isOnAdminPort ? this.#isKnownAdminHost : this.#isKnownHost;
    if (isKnownHost !== null && !isKnownHost(head.get('host'))) {
      return new RouterError(
        'foreign_page',
        'The Host of the request is not a name of this router: add it to --allowed-hosts, or use localhost or the address.',
      );
    }
    if (this.#isOfForeignPage(head)) {
      return new RouterError(
        'foreign_page',
        'A web page of another origin sent the request: add the origin to --cors-allowed-origins if it may control the router.',
      );
    }
    return null;
  }

  #isOfForeignPage(head: RequestHead): boolean {
    const site = head.get('sec-fetch-site');
    const origin = head.get('origin')?.toLowerCase();
    if (origin !== undefined && (this.#origins.has(origin) || this.#origins.has('*'))) return false;
    // Browsers send `sec-fetch-site` to https and loopback addresses. Behind a proxy the Host may differ from the page's.
    if (site !== undefined) return site !== 'same-origin' && site !== 'none';
    return origin !== undefined && origin.replace(/^https?:\/\//, '') !== head.get('host')?.toLowerCase();
  }
}

/** The type is optional for programs; pages are refused by their origin. */
function formBody(head: RequestHead): RouterError | null {
  const hasBody = head.isChunked || head.contentLength > 0;
  const type = hasBody ? (head.get('content-type') ?? '').split(';', 1)[0]!.trim().toLowerCase() : '';
  if (!ASKS_NOBODY.test(type)) return null;
  const message = `This endpoint takes JSON, not ${type}: send "content-type: application/json" (curl: -H 'content-type: application/json').`;
  return new RouterError('not_json', message);
}
