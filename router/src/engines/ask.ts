import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { type Endpoint, reach } from '../wire/upstream-connection.ts';

/** It took longer than it was given. */
export class NoAnswer extends Error {}

/** An engine's answer to a control question. */
export interface Reply {
  readonly status: number;
  readonly text: string;
}

/** Answers to control questions are small; what is larger is not one. */
const MAX_REPLY_BYTES = 4_194_304;

/** Asks an engine something outside the request road (health, version, model). Rejects with words when it can't. */
export function ask(
  endpoint: Endpoint,
  path: string,
  timeoutMs: number,
  options: { method?: string; host?: string; authorization?: string; json?: string } = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const send = endpoint.isTls ? httpsRequest : httpRequest;
    const { host, authorization, json } = options;
    const request = send({
      ...reach(endpoint),
      path,
      method: options.method ?? 'GET',
      agent: false,
      headers: {
        ...(host === undefined ? {} : { host }),
        ...(authorization === undefined || authorization === '' ? {} : { authorization }),
        ...(json === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(json) }),
      },
    });
    // The whole question, from connecting to the last byte, has this long.
    const timer = setTimeout(() => request.destroy(new NoAnswer(`no answer within ${timeoutMs} ms`)), timeoutMs);
    request.on('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => {
        text += part;
        if (text.length > MAX_REPLY_BYTES) request.destroy(new Error('the answer is too large'));
      });
      response.on('error', reject);
      response.on('end', () => {
        clearTimeout(timer);
        resolve({ status: response.statusCode ?? 0, text });
      });
    });
    request.end(json);
  });
}

/** A question to one engine by its path. */
export type Asker = (path: string) => Promise<Reply>;

/** @returns the JSON object that `path` answers with status 200, or null for anything else. */
export async function askJson(asker: Asker, path: string): Promise<Record<string, unknown> | null> {
  try {
    const reply = await asker(path);
    if (reply.status !== 200) return null;
    const value: unknown = JSON.parse(reply.text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** @returns the body that `path` answers with status 200, or null for anything else. */
export async function askText(asker: Asker, path: string): Promise<string | null> {
  const reply = await asker(path).catch(() => null);
  return reply?.status === 200 ? reply.text : null;
}
