import type { Config } from '../config/options.ts';
import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { type AuthorizerParts, isForClients, isOpen } from './authorizer.ts';
import { type HostTest, hostTest } from './known-hosts.ts';

/** What a page may send to any server without asking it first (the Fetch standard, section 2.2.2). */
const ASKS_NOBODY = /^(text\/plain|application\/x-www-form-urlencoded|multipart\/form-data)$/;

export interface PageGuardParts extends Pick<AuthorizerParts, 'isOwn' | 'isOfPluginForClients' | 'paths'> {
  /** The request has a valid key. */
  readonly hasShownKey: (x: Exchange) => boolean;
}

/**
 * Keeps web pages from controlling or reading the router through the browser of somebody who can reach it. For requests without a valid
 * key only: a browser sends a key for no page but those that know it.
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

  /** @returns why the request is refused; null: it controls and reads nothing, or no foreign page can have sent it */
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
    // Browsers send it to https and loopback addresses. Behind a proxy the Host may not be what the page knows.
    if (site !== undefined) return site !== 'same-origin' && site !== 'none';
    return origin !== undefined && origin.replace(/^https?:\/\//, '') !== head.get('host')?.toLowerCase();
  }
}

/** Programs may leave the type out; a page that does so is refused for its origin. */
function formBody(head: RequestHead): RouterError | null {
  const hasBody = head.isChunked || head.contentLength > 0;
  const type = hasBody ? (head.get('content-type') ?? '').split(';', 1)[0]!.trim().toLowerCase() : '';
  if (!ASKS_NOBODY.test(type)) return null;
  const message = `This endpoint takes JSON, not ${type}: send "content-type: application/json" (curl: -H 'content-type: application/json').`;
  return new RouterError('not_json', message);
}
