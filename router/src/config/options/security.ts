import { z } from 'zod';
import { file, flag, inGroup, list, port } from './option.ts';

const option = inGroup('Security');

/** A key travels in a header. */
const key = z.string().regex(/^[\x21-\x7e]+$/, 'a key is made of visible ASCII characters, without spaces');
/** Given but empty (an unset variable in a start script) is a mistake: it would open the door. */
const keys = z.array(key).min(1, 'no key is in it').optional();
/** As browsers write it: no path, no slash at its end. */
const origin = z
  .string()
  .regex(/^(\*|https?:\/\/[^/\s,]+)$/i, 'give each origin as https://host or https://host:port, without a path, or *');

export const securityOptions = {
  apiKey: option(
    '<keys...>',
    keys,
    'Keys, one of which every request must carry (authorization: Bearer KEY). Rather give a file: command lines can be read by others.',
    { needsRestart: true },
  ),
  apiKeyFile: option('<file>', file, 'The same, a key a line; read again on SIGHUP.', {
    needsRestart: true,
    isCommon: true,
  }),
  adminApiKey: option(
    '<keys...>',
    keys,
    'Keys for what steers the router or engines (workers, policies, weights, pauses). Without them --api-key guards that too.',
    { needsRestart: true },
  ),
  adminApiKeyFile: option('<file>', file, 'The same, a key a line; read again on SIGHUP.', {
    needsRestart: true,
    isCommon: true,
  }),
  workerApiKey: option(
    '<key>',
    key.optional(),
    'Key for the engines: replaces whatever authorization a request carries.',
    { needsRestart: true },
  ),
  sendApiKeyToWorkers: option('', flag, 'Send the first --api-key to engines, as other routers do.', {
    needsRestart: true,
  }),
  adminPort: option(
    '<port>',
    port.optional(),
    'Take what steers the router or engines on this port only; 0 picks a free one.',
    { needsRestart: true },
  ),
  adminHost: option('<address>', z.string().min(1).default('127.0.0.1'), 'Address for it.', { needsRestart: true }),
  workerAllow: option(
    '<patterns...>',
    list,
    'Where workers may be: networks (10.0.0.0/8) and host names (*.gpu.internal). Default: anywhere but link-local and cloud metadata addresses.',
    { needsRestart: true },
  ),
  corsAllowedOrigins: option(
    '<origins...>',
    z.array(origin).default([]),
    'Web pages that may call the router from a browser: https://host each, or *.',
    { needsRestart: true },
  ),
} as const;
