import type { Asker } from './ask.ts';
import type { Engine, EngineFacts, EngineKind } from './engine.ts';
import { openai } from './openai.ts';
import { sglang } from './sglang.ts';
import { vllm } from './vllm.ts';

/** All kinds of engines. */
export const engines: Readonly<Record<EngineKind, Engine>> = { sglang, vllm, openai };

/** Finds the kind of an engine. `openai` accepts every engine, so it comes last. */
export async function identify(ask: Asker): Promise<EngineFacts> {
  return (await sglang.read(ask)) ?? (await vllm.read(ask)) ?? (await openai.read(ask))!;
}
