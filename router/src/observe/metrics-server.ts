import { type Server, createServer } from 'node:http';

/** A scraper that sends or takes nothing for so long is gone: it must not keep a connection, nor the router from closing. */
const IDLE_MS = 10_000;
const MAX_CONNECTIONS = 64;

export type MetricsText = () => Promise<{ contentType: string; text: string }>;

/** Answers every request with the metrics: a port of its own, so that scrapers need no access to the data port. */
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
