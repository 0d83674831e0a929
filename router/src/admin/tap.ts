import type { Hono } from 'hono';
import * as z from 'zod';
import type { ExchangeRows } from '../observe/exchange-rows.ts';

const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  // The length is not known: see `isStreamed`.
  'transfer-encoding': 'chunked',
};

/** `GET /tap`: exchanges as they end. */
export function addTap(app: Hono, rows: ExchangeRows): void {
  app.get('/tap', async (c) => {
    // Loaded for the first listener.
    const { rowFilter, rowQuery } = await import('../observe/row-filter.ts');
    const { Tap } = await import('../observe/tap.ts');
    const query = rowQuery.safeParse(c.req.query());
    if (!query.success)
      return c.json({ error: `In the query: ${z.prettifyError(query.error)}`, code: 'BAD_REQUEST' }, 400);
    return new Response(new ReadableStream(new Tap(rows, rowFilter(query.data)), { highWaterMark: 0 }), {
      headers: HEADERS,
    });
  });
}
