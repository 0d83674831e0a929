import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { chatDialect } from './chat-dialect.ts';
import type { Dialect } from './clients.ts';
import { Engines } from './engines.ts';
import { sampledPieces, shown, stopped } from './hard-text.ts';
import { Journal } from './journal.ts';
import type { Step } from './plan.ts';
import { newAgent, post } from './post.ts';
import { generateDialect } from './radix-dialect.ts';
import { testedHere } from './scene.ts';

/**
 * Sessions that take turns, so many at once, at the default limits: how many next prompts are not, token for token, what was read and
 * sampled before. `node router/test/exact/capacity.ts`
 */
const WIDE = 32;

interface Sizes {
  readonly sessions: number;
  readonly turns: number;
  /** Of a turn: about half of them are asked, half are sampled. */
  readonly tokens: number;
}

async function run<State>(plugin: string, dialect: Dialect<State>, { sessions, turns, tokens }: Sizes): Promise<void> {
  const tokenizerPath = mkdtempSync(join(tmpdir(), 'turnout-capacity-'));
  writeTokenizer(tokenizerPath);
  const journal = new Journal();
  const engines = await Engines.start(['sglang', 'sglang'], journal);
  // Limits are those that a router has by itself.
  const limits = { store: undefined, storeMemoryBytes: undefined };
  const router = await testedHere({ workerUrls: engines.urls, tokenizerPath, plugin: [plugin], ...limits });
  const agent = newAgent();
  const paths: string[] = [];
  const states: State[] = [];
  const began = performance.now();
  for (let turn = 0; turn < turns; turn++) {
    let next = 0;
    const work = async (): Promise<void> => {
      while (next < sessions) {
        const s = next++;
        if (turn === 0) paths[s] = plugin === 'chat-sessions' ? await sessionPath(router.url) : '';
        const answer = Array.from(
          { length: Math.ceil(tokens / 8) },
          (_, i) => sampledPieces[2 + ((s + i) % 3)]!,
        ).flat();
        const step = {
          ...usual,
          say: `${s}.${turn}${' time'.repeat(tokens / 2)}`,
          answer: answer.slice(0, tokens / 2),
        };
        const name = `s${s}.${turn}`;
        const ids = stopped(step.answer, true);
        engines.scripts.set(name, { ids });
        const isFirst = states[s] === undefined;
        const end = {
          call: isFirst ? null : ({} as never),
          state: states[s] ?? dialect.start,
          isStopped: true,
          answer: ids,
        };
        const asked = dialect.ask(end, step, `session ${s}`);
        const { path, body } = dialect.request(asked, step, name);
        const headers = plugin === 'radix-tree' ? { 'x-session-id': `s${s}` } : {};
        const reply = await post(
          agent,
          router.url + paths[s] + path,
          body,
          { ...headers, 'x-request-id': name },
          () => 'go on',
        );
        if (reply.status !== 200) throw new Error(`${name}: ${reply.status} ${reply.parts.join('')}`);
        states[s] = dialect.answered(asked, shown(ids));
        engines.scripts.delete(name);
      }
    };
    await Promise.all(Array.from({ length: WIDE }, work));
  }
  const byCall = new Map(journal.generated.map((one) => [one.call, one]));
  let encodedAgain = 0;
  for (let s = 0; s < sessions; s++) {
    for (let turn = 1; turn < turns; turn++) {
      const before = byCall.get(`s${s}.${turn - 1}`)!;
      const { inputIds } = byCall.get(`s${s}.${turn}`)!;
      if (![...before.inputIds, ...before.outputIds].every((id, i) => id === inputIds[i])) encodedAgain++;
    }
  }
  const secs = ((performance.now() - began) / 1000).toFixed(0);
  console.log(
    `${plugin}: ${sessions} sessions x ${turns} turns x ${tokens} tokens: ${encodedAgain} of ${sessions * (turns - 1)} prompts encoded again, ` +
      `${(process.memoryUsage().rss / 1e6).toFixed(0)} MB with engines and clients, ${secs} s`,
  );
  agent.destroy();
  await router.close();
  await engines.close();
  rmSync(tokenizerPath, { recursive: true });
  if (encodedAgain > 0) process.exitCode = 1;
}

const usual: Step = {
  back: 0,
  kept: 100,
  closing: '<|im_end|>\n',
  say: '',
  answer: [],
  isStopped: true,
  isStream: false,
  asksLogprobs: true,
  client: 'waits',
  mishap: 'none',
  at: 0,
};

async function sessionPath(url: string): Promise<string> {
  const begun = (await (await fetch(`${url}/sessions`, { method: 'POST', body: '{}' })).json()) as {
    session_id: string;
  };
  return `/sessions/${begun.session_id}`;
}

await run('radix-tree', generateDialect, { sessions: 4_096, turns: 4, tokens: 64 });
await run('chat-sessions', chatDialect, { sessions: 2_000, turns: 3, tokens: 2_000 });
