import { type Server, createServer } from 'node:http';

export type MetricsText = () => Promise<{ contentType: string; text: string }>;

/** Answers every request with the metrics: a port of its own, so that scrapers need no access to the data port. */
export function createMetricsServer(metricsText: MetricsText): Server {
  return createServer((_request, response) => {
    void metricsText().then(({ contentType, text }) => {
      response.writeHead(200, { 'content-type': contentType }).end(text);
    });
  });
}
