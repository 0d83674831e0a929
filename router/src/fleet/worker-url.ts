import type { Endpoint, UpstreamTls } from '../wire/upstream-pool.ts';

export interface WorkerAddress {
  /** With `@rank`, which distinguishes the workers of one engine. */
  readonly url: string;
  /** Without the rank. */
  readonly engineUrl: string;
  readonly rank: number | null;
  readonly authority: string;
  readonly basePath: string;
  readonly endpoint: Endpoint;
}

/** Data-parallel ranks in a URL, as other routers write them: `http://host:port@3`, or `@4-7` for several. */
const RANKS = /\/*@(\d{1,6})(?:-(\d{1,6}))?\/*$/;

/** No engine has more. */
const MAX_RANKS = 1_024;

/** A worker is named by its URL in headers of responses, too. (`URL` itself removes line breaks.) */
const VISIBLE = /^[\x21-\x7e]*$/;

/** The patterns below are slow on very long texts. */
const MAX_URL_CHARS = 2_048;

/** Reads a worker's URL. @returns a message for the user if it is not valid */
export function readWorkerUrl(
  text: string,
  tls: UpstreamTls | null,
  lookup: Endpoint['lookup'] = null,
): WorkerAddress | string {
  const addresses = readWorkerUrls(text, tls, lookup);
  if (typeof addresses === 'string') return addresses;
  return addresses.length === 1 ? addresses[0]! : `"${text}" names ${addresses.length} ranks: give one.`;
}

/**
 * Reads a URL that may name several ranks of an engine. @returns a message for the user if it is not valid
 *
 * @param ranksEach the ranks of an engine whose URL names none; 1 means one worker without a rank
 */
export function readWorkerUrls(
  text: string,
  tls: UpstreamTls | null,
  lookup: Endpoint['lookup'] = null,
  ranksEach = 1,
): WorkerAddress[] | string {
  if (text.length > MAX_URL_CHARS) return `A worker URL has at most ${MAX_URL_CHARS} characters.`;
  if (!VISIBLE.test(text.trim()))
    return 'A worker URL has only visible ASCII characters: percent-encode others, and write the host as xn--….';
  const [trimmed, ranks] = splitRanks(text.trim(), ranksEach);
  const url = /^[a-z]+:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`;
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return `"${shown(text)}" is not a URL: give a worker as http://host:port.`;
  }
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') {
    return `"${shown(text)}" is neither http nor https: give a worker as http://host:port.`;
  }
  if (parsed.username !== '' || parsed.password !== '') {
    return 'A worker URL must not carry a user name or password. (A data-parallel rank is a number: http://host:port@3.)';
  }
  if (parsed.search !== '' || parsed.hash !== '')
    return `"${shown(text)}" has a query or fragment: give http://host:port.`;
  if (ranks !== null && (ranks.last < ranks.first || ranks.last - ranks.first >= MAX_RANKS)) {
    return `"@${ranks.first}-${ranks.last}" is not a range of at most ${MAX_RANKS} ranks. Use the form http://host:port@4-7.`;
  }
  const beforeV1 = /^(.*?)\/+v1\/*$/.exec(url)?.[1];
  if (beforeV1 !== undefined) {
    return `"${shown(text)}" is the base URL of an API client: a worker URL ends before /v1. Did you mean ${shown(beforeV1)}?`;
  }
  const isTls = parsed.protocol === 'https:';
  const engineUrl = url.replace(/\/+$/, '');
  const engine = {
    engineUrl,
    authority: parsed.host,
    basePath: parsed.pathname === '/' ? '' : parsed.pathname.replace(/\/+$/, ''),
    endpoint: {
      host: parsed.hostname.replace(/^\[|\]$/g, ''),
      port: parsed.port === '' ? (isTls ? 443 : 80) : Number(parsed.port),
      isTls,
      tls,
      lookup,
    },
  };
  if (ranks === null) return [{ ...engine, url: engineUrl, rank: null }];
  return Array.from({ length: ranks.last - ranks.first + 1 }, (_, i) => {
    const rank = ranks.first + i;
    return { ...engine, url: `${engineUrl}@${rank}`, rank };
  });
}

/** Without what may be a password or token. */
const shown = (text: string): string => text.slice(text.lastIndexOf('@') + 1).split(/[?#]/)[0]!;

function splitRanks(text: string, ranksEach: number): [url: string, ranks: { first: number; last: number } | null] {
  const match = RANKS.exec(text);
  if (match === null) return [text, ranksEach > 1 ? { first: 0, last: ranksEach - 1 } : null];
  const first = Number(match[1]);
  return [text.slice(0, match.index), { first, last: match[2] === undefined ? first : Number(match[2]) }];
}
