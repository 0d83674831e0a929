import type { Config } from './options.ts';
import { pairKind } from './pairs.ts';

/** @returns what was asked for and does nothing here, in words for the user: none of it may pass in silence. */
export function withoutEffect(config: Config): string[] {
  const lines: string[] = [];
  if (config.evictionIntervalSecs !== undefined) {
    lines.push('--eviction-interval-secs has no effect: --max-tree-size is enforced at every request');
  }
  // SGLang's decode engines work out a prefill rank from the room; a rank that is named beside it is not tested with them.
  if (pairKind(config) === 'sglang') {
    const why =
      'has no effect with --pd-disaggregation: in a prefill/decode pair the engine, not the router, assigns DP ranks';
    if (config.dpAware) lines.push(`--dp-aware ${why}`);
    if (config.intraNodeDataParallelSize > 1) lines.push(`--intra-node-data-parallel-size ${why}`);
  }
  const captures = config.captureChat || config.plugin.some((entry) => /^(radix-tree|chat-sessions)(:|$)/.test(entry));
  if (config.captureBodies && !captures) {
    lines.push('--capture-bodies has no effect without a plugin that captures: --plugin radix-tree or --capture-chat');
  }
  return lines;
}
