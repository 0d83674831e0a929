import { type Server, createServer } from 'node:http';
import type { HostTest } from '../admit/known-hosts.ts';

/** Idle time after which a scraper's connection is closed, so that it cannot keep the router from closing. */
const IDLE_MS = 10_000;
const MAX_CONNECTIONS = 64;

export type MetricsText = () => Promise<{ contentType: string; text: string }>;

/**
 * Serves the metrics on a separate port, so that scrapers need no access to the data port. @param isKnownHost null: every name is
 * accepted
 */
export function createMetricsServer(metricsText: MetricsText, isKnownHost: HostTest | null): Server {
  const options = { headersTimeout: IDLE_MS, requestTimeout: IDLE_MS, connectionsCheckingInterval: IDLE_MS / 4 };
  const server = createServer(options, ({ headers }, response) => {
    // Against web pages whose name resolves to this machine.
    if (isKnownHost !== null && !isKnownHost(headers.host)) {
      const hint = 'The Host is not a name of this router: add it to --allowed-hosts, or use the address.\n';
      response.writeHead(403, { 'content-type': 'text/plain' }).end(hint);
      return;
    }
    void metricsText().then(({ contentType, text }) => {
      response.writeHead(200, { 'content-type': contentType }).end(text);
    });
  });
  server.timeout = IDLE_MS;
  server.maxConnections = MAX_CONNECTIONS;
  return server;
}
