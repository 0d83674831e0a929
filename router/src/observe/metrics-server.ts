import { type Server, createServer } from 'node:http';
import type { HostTest } from '../admit/known-hosts.ts';

/** A request that does not come, or a response that is not read, for this long closes its connection. */
const IDLE_MS = 10_000;
/** How long a connection stays open for the next scrape: they come up to a minute apart, and one that meets the end of its connection fails. */
const NEXT_SCRAPE_MS = 75_000;
const MAX_CONNECTIONS = 64;

const PROBES: ReadonlySet<string> = new Set(['/liveness', '/readiness']);

export type MetricsText = () => Promise<{ contentType: string; text: string }>;

/** What the metrics port serves. */
export interface MetricsPages {
  readonly metricsText: MetricsText;
  /** What the data port responds to a probe. */
  readonly probe: (path: string) => Promise<Response>;
}

/**
 * Serves the metrics on a separate port, so that scrapers need no access to the data port; and probes, which must succeed while the data
 * port has as many connections as it may. @param isKnownHost null: every name is accepted
 */
export function createMetricsServer({ metricsText, probe }: MetricsPages, isKnownHost: HostTest | null): Server {
  const options = { headersTimeout: IDLE_MS, requestTimeout: IDLE_MS, connectionsCheckingInterval: IDLE_MS / 4 };
  const server = createServer(options, ({ headers, url = '' }, response) => {
    // Against web pages whose name resolves to this machine.
    if (isKnownHost !== null && !isKnownHost(headers.host)) {
      const hint = 'The Host is not a name of this router: add it to --allowed-hosts, or use the address.\n';
      response.writeHead(403, { 'content-type': 'text/plain' }).end(hint);
      return;
    }
    if (PROBES.has(url)) {
      void probe(url).then(async (probed) => {
        const contentType = probed.headers.get('content-type') ?? 'text/plain';
        response.writeHead(probed.status, { 'content-type': contentType }).end(await probed.text());
      });
      return;
    }
    void metricsText().then(({ contentType, text }) => {
      response.writeHead(200, { 'content-type': contentType }).end(text);
    });
  });
  server.timeout = IDLE_MS;
  server.keepAliveTimeout = NEXT_SCRAPE_MS;
  server.maxConnections = MAX_CONNECTIONS;
  return server;
}
