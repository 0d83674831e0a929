import type { Asker } from './ask.ts';
import type { Engine, EngineFacts, EngineKind } from './engine.ts';
import { openai } from './openai.ts';
import { sglang } from './sglang.ts';
import { vllm } from './vllm.ts';

/** All kinds of engines. */
export const engines: Readonly<Record<EngineKind, Engine>> = { sglang, vllm, openai };

/** A question that decides the kind of an engine has no answer: the message says which one. */
export class Unidentified extends Error {}

/** Statuses of servers that can't answer now. */
const AWAY: ReadonlySet<number> = new Set([502, 503, 504]);

/**
 * Finds the kind of an engine. `openai` accepts every engine, so it comes last, and rejects with `Unidentified` if the others did not all
 * answer: an engine of another kind that ended or stalled meanwhile would count as `openai` from then on.
 * @param isLasting it was asked several times before, and always lacked answers: then a status of `AWAY` is one, and it is `openai` if it lists
 * a model. A proxy may answer 503 for paths that it does not pass on.
 */
export async function identify(ask: Asker, isLasting = false): Promise<EngineFacts> {
  let problem: string | null = null;
  let isSilent = false;
  const asking: Asker = async (path) => {
    try {
      const reply = await ask(path);
      if (AWAY.has(reply.status)) problem ??= `${path} answered ${reply.status}`;
      return reply;
    } catch (error) {
      problem ??= `${path}: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`;
      isSilent = true;
      throw error;
    }
  };
  for (const engine of [sglang, vllm]) {
    const facts = await engine.read(asking);
    if (facts !== null) return facts;
    if (problem !== null && (isSilent || !isLasting)) throw new Unidentified(problem);
  }
  const facts = (await openai.read(ask))!;
  if (problem !== null && facts.model === null) throw new Unidentified(problem);
  return facts;
}
