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
    'API keys: every request must carry one (authorization: Bearer KEY). Prefer --api-key-file, because other users can read command lines.',
    { needsRestart: true },
  ),
  apiKeyFile: option('<file>', file, 'File with API keys, one per line; read again on SIGHUP.', {
    needsRestart: true,
    isCommon: true,
  }),
  adminApiKey: option(
    '<keys...>',
    keys,
    'API keys for the control API and for control paths of engines (workers, policies, weights, pauses). Without them --api-key protects these, too.',
    { needsRestart: true },
  ),
  adminApiKeyFile: option('<file>', file, 'File with admin API keys, one per line; read again on SIGHUP.', {
    needsRestart: true,
    isCommon: true,
  }),
  workerApiKey: option(
    '<key>',
    key.optional(),
    'API key for the engines; it replaces the authorization header of each request.',
    { needsRestart: true },
  ),
  sendApiKeyToWorkers: option('', flag, 'Send the first --api-key to engines, as other routers do.', {
    needsRestart: true,
  }),
  adminPort: option(
    '<port>',
    port.optional(),
    'Serve the control API and control paths on this port only; 0 picks a free one.',
    { needsRestart: true },
  ),
  adminHost: option('<address>', z.string().min(1).default('127.0.0.1'), 'Address of --admin-port.', {
    needsRestart: true,
  }),
  workerAllow: option(
    '<patterns...>',
    list,
    'Allowed worker addresses: networks (10.0.0.0/8) and host names (*.gpu.internal). Default: any except link-local and cloud metadata addresses.',
    { needsRestart: true },
  ),
  corsAllowedOrigins: option(
    '<origins...>',
    z.array(origin).default([]),
    'Origins that may call the router from a browser: https://host, or *.',
    { needsRestart: true },
  ),
} as const;
