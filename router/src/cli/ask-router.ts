import type * as z from 'zod';
import { neededFor } from '../admin/endpoints.ts';
import { checkInput } from '../config/check-input.ts';
import { ConfigError } from '../config/load.ts';
import { listOf } from '../config/split-list.ts';

const HEAD_TIMEOUT_MS = 10_000;
const BODY_TIMEOUT_MS = 60_000;

/**
 * Sends a GET, or a POST if there is JSON, to a running router. Throws a ConfigError if the response is not JSON of this shape: another
 * server may be there, or a router of another version.
 *
 * @param shape of the fields that are read
 * @returns the response as it is
 */
export async function askRouter<T>(
  shape: z.ZodType,
  url: string,
  path: string,
  apiKey: string | undefined,
  json?: object,
): Promise<T> {
  const deadline = new AbortController();
  const { status, body } = await open(deadline, url, path, apiKey, json);
  const timer = limit(deadline, BODY_TIMEOUT_MS);
  let text: string;
  try {
    text = await new Response(body).text();
  } catch (error) {
    throw new ConfigError(`the response of ${url}${path} is truncated: ${reasonOf(error)}`);
  } finally {
    clearTimeout(timer);
  }
  return readRouters(shape, text, `${url}${path} answered ${status}`) as T;
}

/** Reads JSON of a router. Throws a ConfigError if it has another shape. @param what was received, for the error */
export function readRouters(shape: z.ZodType, text: string, what: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ConfigError(`${what}, and no JSON. Is this a turnout router?`);
  }
  const { problem } = checkInput(shape, value);
  if (problem === null) return value;
  throw new ConfigError(`${what}, and other JSON (${problem}). Is this a turnout router?`);
}

/** An event stream of a running router, which may be open for hours. Throws a ConfigError if there is none, or if it breaks. */
export async function followRouter(
  url: string,
  path: string,
  apiKey: string | undefined,
): Promise<AsyncIterable<Uint8Array>> {
  const { headers, body } = await open(new AbortController(), url, path, apiKey);
  const type = headers.get('content-type') ?? 'no type';
  if (!type.startsWith('text/event-stream'))
    throw new ConfigError(`${url}${path} answered ${type}, not events. Is this a turnout router?`);
  return eventsOf(url, body!);
}

async function* eventsOf(url: string, body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    throw new ConfigError(`${url}: the connection broke: ${reasonOf(error)}`);
  }
}

async function open(
  deadline: AbortController,
  url: string,
  path: string,
  apiKey: string | undefined,
  json?: object,
): Promise<Response> {
  const key = keyOf(apiKey);
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  if (json !== undefined) headers['content-type'] = 'application/json';
  const post = json === undefined ? {} : { method: 'POST', body: JSON.stringify(json) };
  const target = URL.parse(path, url.includes('://') ? url : `http://${url}`);
  if (target === null) throw new ConfigError(`${url} is not the address of a router: give http://host:port`);
  const timer = limit(deadline, HEAD_TIMEOUT_MS);
  let response: Response;
  try {
    response = await fetch(target, { ...post, headers, signal: deadline.signal });
  } catch (error) {
    throw new ConfigError(`${url} does not answer: ${reasonOf(error)}`);
  } finally {
    clearTimeout(timer);
  }
  if (response.ok) return response;
  const { error } = (await response.json().catch(() => ({}))) as { error?: unknown };
  const why = typeof error === 'string' ? ` ${error}` : '';
  const keyHint = response.status === 401 ? ' Give an admin key with --api-key.' : '';
  // A 404 without a text for the user is an engine's: the router passed the request on, and added the id of the request.
  const isPassedOn = response.headers.has('x-request-id');
  const needs = neededFor(json === undefined ? 'GET' : 'POST', path.split('?')[0]!) ?? 'another version';
  const notFound = isPassedOn
    ? ` This router does not serve ${path}: that needs ${needs}.`
    : ' Is this a turnout router?';
  const hint = response.status === 404 && why === '' ? notFound : keyHint;
  throw new ConfigError(`${url}${path} answered ${response.status}.${why}${hint}`);
}

const limit = (deadline: AbortController, ms: number): NodeJS.Timeout =>
  setTimeout(() => deadline.abort(new Error(`no answer within ${ms / 1000} s`)), ms);

function reasonOf(error: unknown): string {
  const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
  return cause?.code || cause?.message || message;
}

/** The variable is the router's too, which takes several keys: each of them is valid. */
function keyOf(apiKey: string | undefined): string | undefined {
  return apiKey === process.env['TURNOUT_ADMIN_API_KEY'] ? (listOf(apiKey ?? '')[0] as string | undefined) : apiKey;
}
