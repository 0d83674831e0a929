import { type Server, createServer } from 'node:http';

/** Idle time after which a scraper's connection is closed, so that it cannot keep the router from closing. */
const IDLE_MS = 10_000;
const MAX_CONNECTIONS = 64;

export type MetricsText = () => Promise<{ contentType: string; text: string }>;

/** Serves the metrics on a separate port, so that scrapers need no access to the data port. */
export function createMetricsServer(metricsText: MetricsText): Server {
  const options = { headersTimeout: IDLE_MS, requestTimeout: IDLE_MS, connectionsCheckingInterval: IDLE_MS / 4 };
  const server = createServer(options, (_request, response) => {
    void metricsText().then(({ contentType, text }) => {
      response.writeHead(200, { 'content-type': contentType }).end(text);
    });
  });
  server.timeout = IDLE_MS;
  server.maxConnections = MAX_CONNECTIONS;
  return server;
}
