import type { Context, Hono } from 'hono';
import type { Exchange } from '../../exchange.ts';
import { EVENT_STREAM_HEADERS } from '../own-endpoints.ts';
import type { FeedSources } from './feed-tables.ts';
import type { Feed } from './feed.ts';

/** `/dashboard`: the page, its files and what it shows. All of it is loaded with the first request. */
export function addDashboardRoutes(app: Hono, sources: FeedSources): void {
  let feed: Promise<Feed> | null = null;
  app.get('/dashboard', async (c) => {
    const { exchange } = c.env as { exchange?: Exchange };
    const { page } = await import('./files.ts');
    return page(exchange?.head.target ?? c.req.path, c.req.header('if-none-match'));
  });
  app.get('/dashboard/assets/:file', async (c: Context<object, '/dashboard/assets/:file'>) =>
    (await import('./files.ts')).asset(c.req.param('file')),
  );
  app.get('/dashboard/feed', async () => {
    feed ??= import('./feed.ts').then((loaded) => new loaded.Feed(sources));
    return new Response((await feed).read(), { headers: EVENT_STREAM_HEADERS });
  });
}
