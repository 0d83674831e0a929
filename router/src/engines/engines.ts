import type { Asker } from './ask.ts';
import type { Engine, EngineFacts, EngineKind } from './engine.ts';
import { openai } from './openai.ts';
import { sglang } from './sglang.ts';
import { vllm } from './vllm.ts';

/** All kinds of engines, in the order in which an unknown one is tried. */
export const engines: Readonly<Record<EngineKind, Engine>> = { sglang, vllm, openai };

/** Finds out what stands behind an address. It answers to some kind in any case: `openai` claims nothing. */
export async function identify(ask: Asker): Promise<EngineFacts> {
  return (await sglang.read(ask)) ?? (await vllm.read(ask)) ?? (await openai.read(ask))!;
}
