import * as z from 'zod';
import { address, file, flag, inGroup, list, port } from './option.ts';

const option = inGroup('Security');
const tls = inGroup('TLS');

/** A key is sent in a header. */
const key = z.string().regex(/^[\x21-\x7e]+$/, 'a key is made of visible ASCII characters, without spaces');
/** An empty value (an unset variable in a start script) is an error: it would disable authorization. */
const keys = z.array(key).min(1, 'no key is in it').optional();
/** As browsers write it: no path, no slash at the end. */
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
    'API key for the engines; it replaces authorization and x-api-key of each request.',
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
  adminHost: option('<address>', address.min(1).default('127.0.0.1'), 'Address of --admin-port.', {
    needsRestart: true,
  }),
  workerAllow: option(
    '<patterns...>',
    list,
    'Allowed worker addresses: networks (10.0.0.0/8) and host names (*.gpu.internal). Default: any except link-local and cloud metadata addresses.',
    { needsRestart: true },
  ),
  allowedHosts: option(
    '<names...>',
    z
      .array(
        z
          .string()
          .regex(/^(\*|(\*\.)?[^\s/:*]+)$/, 'give each name without a port, as router.example or *.example, or *'),
      )
      .default([]),
    'Host names by which clients may control and read the router without a key, beside localhost and addresses. *: any. Default: any, unless --host is a loopback address.',
    { needsRestart: true },
  ),
  corsAllowedOrigins: option(
    '<origins...>',
    z.array(origin).default([]),
    'Origins that may call the router from a browser: https://host, or *.',
    { needsRestart: true },
  ),

  tlsCertPath: tls('<file>', file, 'TLS certificate (PEM) of this server; read again on SIGHUP.', {
    needsRestart: 'when set or unset',
  }),
  tlsKeyPath: tls('<file>', file, 'Private key (PEM) of --tls-cert-path.', { needsRestart: 'when set or unset' }),
  caCertPath: tls('<file>', file, 'Certificate authorities (PEM) to trust for https workers; read again on SIGHUP.'),

  tlsClientCaPath: tls(
    '<file>',
    file,
    'Certificate authorities (PEM) for client certificates: clients must present one.',
    {
      needsRestart: 'when set or unset',
    },
  ),
  clientCertPath: tls('<file>', file, 'Client certificate (PEM) for https workers; read again on SIGHUP.'),
  clientKeyPath: tls('<file>', file, 'Private key (PEM) of --client-cert-path.'),
} as const;
