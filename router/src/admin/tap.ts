import type { Hono } from 'hono';
import { checkInput } from '../config/check-input.ts';
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
    const { data, problem } = checkInput(rowQuery, c.req.query());
    if (problem !== null) return c.json({ error: `In the query: ${problem}`, code: 'BAD_REQUEST' }, 400);
    return new Response(new ReadableStream(new Tap(rows, rowFilter(data)), { highWaterMark: 0 }), {
      headers: HEADERS,
    });
  });
}
