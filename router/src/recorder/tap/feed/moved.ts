import { RouterError } from '../../../kit/errors.ts';
import { Refused } from '../../../plugin.ts';
import type { RecorderThread } from '../recorder-thread.ts';

/** Rejects with a refusal where another router has taken the feed over: to ask again would be of no use. */
async function requireHeld(thread: RecorderThread): Promise<void> {
  const owner = await thread.ask('feedTakenBy', null);
  if (owner === null) return;
  const message = `The router ${owner} has taken over this feed, because this one was silent for too long: use that router.`;
  throw new Refused(new RouterError('feed_moved', message));
}

/** The result of a call; of one that fails because another router has the feed, the refusal that says so. */
export const whileHeld = <T>(thread: RecorderThread, asked: Promise<T>): Promise<T> =>
  asked.catch(async (error: unknown) => {
    await requireHeld(thread).catch((refusal: unknown) => {
      throw refusal instanceof Refused ? refusal : error;
    });
    throw error;
  });
