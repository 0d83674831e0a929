import type { Peer } from '../config/alias/alias.ts';
import { sglang } from '../config/alias/sglang.ts';
import { slime } from '../config/alias/slime.ts';
import { vllm } from '../config/alias/vllm.ts';
import { ROUTER_PREFIX, WITHOUT_PREFIX } from '../launch/sglang-spelling.ts';

/** A command that accepts the flags of another router. */
export interface Spelling {
  readonly peer: Peer;
  /** The first one is shown in help. */
  readonly verbs: readonly string[];
  /** How a flag is written there, also for our own options. */
  readonly flagFor: (name: string) => string;
}

/** The commands of the routers themselves. */
export const routers: readonly Spelling[] = [sglang, vllm, slime].map((peer) => ({
  peer,
  verbs: peer.verbs,
  flagFor: (name) => name,
}));

/** SGLang's launcher of engines and a router. */
export const launchServer: Spelling = {
  peer: sglang,
  verbs: ['launch_server'],
  flagFor: (name) => (WITHOUT_PREFIX.includes(name) ? name : ROUTER_PREFIX + name),
};
