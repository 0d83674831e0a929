import type { Cors } from '../admit/cors.ts';
import { errorFormatOf, normalPath } from '../classify/classify.ts';
import type { LiveConfig } from '../config/live.ts';
import { sendError } from '../forward/errors.ts';
import { addForwarded } from '../forward/headers.ts';
import type { Meters } from '../observe/meters.ts';
import type { RefusalLog } from '../observe/request-logs.ts';
import type { Pipeline } from '../pipeline.ts';
import type { RequestListener } from '../wire/client-connection.ts';
import { refusalError } from '../wire/result.ts';

export interface EntryParts {
  readonly live: LiveConfig;
  readonly pipeline: Pipeline;
  readonly meters: Meters;
  readonly refusals: RefusalLog;
  readonly cors: Cors | null;
}

/** Dispatches the requests of sockets, and responds to invalid ones. */
export function requestEntry({ live, pipeline, meters, refusals, cors }: EntryParts): RequestListener {
  const options = live.of(({ forwardedHeaders, tlsCertPath }) => ({
    forwardedHeaders,
    isTls: tlsCertPath !== undefined,
  }));
  return {
    onRequest(head, body, connection) {
      if (options.forwardedHeaders) {
        const clientAddress = connection.socket.remoteAddress ?? 'unknown';
        addForwarded(head, { clientAddress, scheme: options.isTls ? 'https' : 'http' });
      }
      const sink = cors === null ? connection : cors.sinkFor(head, connection);
      if (sink === null) return;
      try {
        const x = pipeline.dispatch(head, body, sink);
        if (x.outcome === null) connection.watcher = x;
      } catch (error) {
        // The connection ends the exchange and closes.
        for (const x of pipeline.inFlight) if (x.sink === sink) connection.watcher = x;
        throw error;
      }
    },
    onRefused(refusal, target, connection) {
      const error = refusalError(refusal);
      meters.headRefused(error.code);
      const path = normalPath(target);
      refusals.refusedHead(error, path);
      sendError(connection, error, errorFormatOf(path));
    },
  };
}
