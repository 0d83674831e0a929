import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

interface CallFrame {
  readonly functionName: string;
  /** Its line is from 0. */
  readonly location: { readonly scriptId: string; readonly lineNumber: number };
}
/** A message of the Chrome DevTools Protocol. */
type Message =
  | { readonly method: 'Debugger.scriptParsed'; readonly params: { readonly scriptId: string; readonly url: string } }
  | { readonly method: 'Debugger.paused'; readonly params: { readonly callFrames: readonly CallFrame[] } }
  | { readonly method?: undefined };

/** A loop over promises is in one of several functions, or in Node's own between them. */
const LOOKS = 10;

/**
 * Where a Node process is that does not respond: asked of its debugger, which has a thread of its own and stops a loop too.
 * @param process with `--inspect-port=0`, and its standard error a pipe
 * @returns the stacks that were seen, a line each, the innermost call first; empty of a process that only waits
 */
export async function stacksOf(process: ChildProcess, patienceMs: number): Promise<Set<string>> {
  const signal = AbortSignal.timeout(patienceMs);
  const stacks = new Set<string>();
  const urls = new Map<string, string>();
  let looks = 0;
  try {
    process.kill('SIGUSR1');
    const socket = new WebSocket(await debuggerOf(process, signal));
    const ask = (method: string): void => socket.send(JSON.stringify({ id: 1, method: `Debugger.${method}` }));
    socket.addEventListener('message', ({ data }: MessageEvent) => {
      const { method, params } = { params: undefined, ...(JSON.parse(data as string) as Message) };
      if (method === 'Debugger.scriptParsed') urls.set(params.scriptId, params.url);
      if (method !== 'Debugger.paused') return;
      const calls = params.callFrames.map(
        ({ functionName, location }) => `${functionName} ${urls.get(location.scriptId)}:${location.lineNumber + 1}`,
      );
      stacks.add(calls.join(' < '));
      looks++;
      ask('resume');
    });
    await once(socket, 'open', { signal });
    ask('enable');
    while (looks < LOOKS) {
      ask('pause');
      await delay(50, undefined, { signal });
    }
  } catch {
    // What was seen until then.
  }
  return stacks;
}

async function debuggerOf({ stderr }: ChildProcess, signal: AbortSignal): Promise<string> {
  for (let said = ''; ;) {
    const [, url] = /Debugger listening on (ws:\S+)\s/.exec(said) ?? [];
    if (url !== undefined) return url;
    const [bytes] = (await once(stderr!, 'data', { signal })) as [Buffer];
    said += bytes.toString();
  }
}
