import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';

/** Where `npm ci` and `npm run build` put the page: in `dist/`, whose shared code is one folder below it. */
const folder = new URL(import.meta.url.endsWith('.ts') ? '../../../dist/dashboard/' : '../dashboard/', import.meta.url);

const types: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
};

/** The page may load and call nothing but this router, and no page may have it in a frame. */
const headers: Readonly<Record<string, string>> = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
};

const NOT_BUILT = `The dashboard is not built in this checkout: npm ci builds it, unless scripts are off (--ignore-scripts). Build it with

  npm run build

and reload this page. The router does not need a restart.
`;

/** @param target of the request @param known the etag that the browser has */
export async function page(target: string, known: string | undefined): Promise<Response> {
  // The addresses in the page are relative, so that they are right behind a proxy with a path of its own.
  if (/^[^?]*\/(\?|$)/.test(target)) return new Response(null, { status: 308, headers: { location: '../dashboard' } });
  const html = await read('index.html');
  if (html === null)
    return new Response(NOT_BUILT, { status: 501, headers: { ...headers, 'content-type': 'text/plain' } });
  const etag = `"${createHash('sha256').update(html).digest('base64url').slice(0, 22)}"`;
  const fields = { ...headers, 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-cache', etag };
  return known === etag
    ? new Response(null, { status: 304, headers: fields })
    : new Response(html, { headers: fields });
}

/** The name of a file has the hash of its content. */
export async function asset(name: string): Promise<Response> {
  const type = types[/^[\w-]+\.(\w+)$/.exec(name)?.[1] ?? ''];
  const bytes = type === undefined ? null : await read(`assets/${name}`);
  if (type === undefined || bytes === null) return new Response('No such file\n', { status: 404, headers });
  const cached = { 'content-type': type, 'cache-control': 'public, max-age=31536000, immutable' };
  return new Response(bytes, { headers: { ...headers, ...cached } });
}

const read = (path: string): Promise<Uint8Array<ArrayBuffer> | null> =>
  readFile(new URL(path, folder)).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  }) as Promise<Uint8Array<ArrayBuffer> | null>;
