/** How long a request waits for a response that it continues: its client closed that stream, and the router has not read the close yet. */
const WAIT_MS = 250;

/** Waits until responses are recorded. @returns whether one of them still is not */
export async function areLate(recorded: readonly Promise<void>[]): Promise<boolean> {
  if (recorded.length === 0) return false;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => (timer = setTimeout(resolve, WAIT_MS, true)));
  const all = Promise.all(recorded).then(() => false);
  return Promise.race([all, late]).finally(() => clearTimeout(timer));
}
