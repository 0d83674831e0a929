// npm run bench -- VERB [options]: every benchmark of this repository.

interface Verb {
  readonly does: string;
  /** The module runs when it is imported; its options are the words after the verb. */
  readonly run: () => Promise<unknown>;
}

const verbs: Readonly<Record<string, Verb>> = {
  compare: {
    does: 'CPU per request, compared with nginx and the other routers; without a verb; --help',
    run: () => import('./compare.ts'),
  },
  policies: {
    does: 'routing policies in a simulated fleet, in virtual time; --help',
    run: () => import('./policies/run.ts'),
  },
  rebalance: {
    does: 'what moving unfinished work to other engines changes, in virtual time; [traces] [seeds] [least gains]',
    run: () => import('./policies/rebalance-run.ts'),
  },
  rollout: {
    does: 'the simulation of "policies" compared with a router and simulated engines on sockets; --help',
    run: () => import('./rollout/run.ts'),
  },
  decisions: {
    does: 'CPU of a decision by workers and open sessions, and the memory of a session; --policies, --scenes, --rounds, --decisions',
    run: () => import('./decisions/run.ts'),
  },
  'prefix-index': {
    does: 'the block index compared with a radix tree: time, memory, pauses of the event loop',
    run: () => import('./prefix-index/run.ts'),
  },
  'event-loop': {
    does: 'how long inputs within the limits block the event loop; [--explain] [--input=part of a name] [setup...]',
    run: () => import('./event-loop/run.ts'),
  },
  observe: {
    does: 'CPU of the metrics and traces of a request',
    run: () => import('./observe/run.ts'),
  },
  dashboard: {
    does: 'CPU of the dashboard, with and without a page that is open; [rounds] [ms of a window]',
    run: () => import('./dashboard/run.ts'),
  },
  start: {
    does: 'time from the start of each router to its first response, and its memory; [runs]',
    run: () => import('./start/run.ts'),
  },
  swap: {
    does: 'what the router adds to the time of a weight swap; [swaps]',
    run: () => import('./swap/run.ts'),
  },
  'store-wait': {
    does: 'the delay of a last event that waits for its turn to be stored',
    run: () => import('./store-wait/run.ts'),
  },
  feed: {
    does: 'CPU of the feed per turn, the time of a group to its consumer, the memory of pending groups; [turns for that]',
    run: () => import('./feed/run.ts'),
  },
  picker: {
    does: 'CPU of a decision as endpoint picker of a gateway; [requests] [rounds]',
    run: () => import('./picker/run.ts'),
  },
  pickers: {
    does: 'CPU, latency and makespan beside the endpoint pickers of llm-d and of the Gateway API, before an Envoy; --help',
    run: () => import('./pickers/run.ts'),
  },
  'radix-tree': {
    does: 'CPU of exact-token capture per request: the row radix-2k of "compare" alone; [requests] [rounds]',
    run: () => import('./radix-tree/run.ts'),
  },
  'radix-memory': {
    does: 'the memory of a radix tree over a million trajectories, which fails above its limit; [inserts]',
    run: () => import('./radix-tree/memory.ts'),
  },
  'tinker-polls': {
    does: 'CPU of a poll of a Tinker result; [polls] [connections]',
    run: () => import('./tinker/polls.ts'),
  },
};

const word = process.argv[2];
const isOption = word === undefined || word.startsWith('-');
const verb = verbs[isOption ? 'compare' : word];
if (verb === undefined || word === '--help') {
  const lines = Object.entries(verbs).map(([name, { does }]) => `  ${name.padEnd(14)}${does}`);
  const text = `npm run bench -- VERB [options]\n${lines.join('\n')}\n`;
  if (verb === undefined) {
    process.stderr.write(`no benchmark is called ${word}\n\n${text}`);
    process.exitCode = 1;
  } else process.stdout.write(text);
} else {
  if (!isOption) process.argv.splice(2, 1);
  await verb.run();
}
