import { neededFor } from '../admin/endpoints.ts';
import { ConfigError } from '../config/load.ts';

const TIMEOUT_MS = 10_000;

/**
 * Sends a GET, or a POST if there is JSON, to a running router. Throws a ConfigError if the router does not respond or responds with an
 * error.
 */
export async function askRouter(
  url: string,
  path: string,
  apiKey: string | undefined,
  json?: object,
): Promise<Response> {
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const deadline = new AbortController();
  // For the head of the response only: a stream may be open for hours.
  const timer = setTimeout(() => deadline.abort(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS);
  let response: Response;
  try {
    if (json !== undefined) headers['content-type'] = 'application/json';
    const post = json === undefined ? {} : { method: 'POST', body: JSON.stringify(json) };
    response = await fetch(new URL(path, url), { ...post, headers, signal: deadline.signal });
  } catch (error) {
    const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
    throw new ConfigError(`${url} does not answer: ${cause?.code || cause?.message || message}`);
  } finally {
    clearTimeout(timer);
  }
  if (response.ok) return response;
  const { error } = (await response.json().catch(() => ({}))) as { error?: unknown };
  const isForbidden = response.status === 401 || response.status === 403;
  const why = typeof error === 'string' && !isForbidden ? ` ${error}` : '';
  const keyHint = isForbidden ? ' Give an admin key with --api-key.' : '';
  // A 404 without a text for the user is an engine's: the router passed the request on, and added the id of the request.
  const isPassedOn = response.headers.has('x-request-id');
  const needs = neededFor(json === undefined ? 'GET' : 'POST', path.split('?')[0]!) ?? 'another version';
  const notFound = isPassedOn
    ? ` This router does not serve ${path}: that needs ${needs}.`
    : ' Is this a turnout router?';
  const hint = response.status === 404 && why === '' ? notFound : keyHint;
  throw new ConfigError(`${url}${path} answered ${response.status}.${why}${hint}`);
}
