import { type AlignedTokens, alignIds, alignPrompt, alignSampled, alignUnseen } from '../tokens/align.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import type { Turn, TurnTexts } from '../../shared/turn.ts';

interface TextsOf {
  /** What the turn adds before what was sampled; null: it came as ids. */
  readonly given: { readonly ids: Int32Array; readonly text: Buffer } | null;
  /** `text` is null if the engine returned none. */
  readonly sampled: { readonly ids: Int32Array; readonly text: Buffer | null; readonly wasStopped: boolean };
}

/** What has to be stored of the texts of a turn, so that its tokens can be laid beside them again; undefined: nothing. */
export function textsOf({ pieces, before }: Tokenizer, { given, sampled }: TextsOf): TurnTexts | undefined {
  const texts: { framing?: number; prompt?: string; answer?: string } = {};
  if (given !== null && !pieces.spell(given.ids, given.text)) {
    let framing = 0;
    while (framing < before.length && given.ids[framing] === before[framing]) framing++;
    if (framing > 0 && pieces.spell(given.ids.subarray(framing), given.text)) texts.framing = framing;
    else texts.prompt = given.text.toString('latin1');
  }
  if (sampled.text !== null && !pieces.spell(seenIds(pieces, sampled), sampled.text)) {
    texts.answer = sampled.text.toString('latin1');
  }
  return Object.keys(texts).length === 0 ? undefined : texts;
}

/** Without the token that stopped them. */
function seenIds(pieces: Tokenizer['pieces'], { ids, wasStopped }: TextsOf['sampled']): Int32Array {
  const last = ids.at(-1);
  return wasStopped && last !== undefined && pieces.isSpecial(last) ? ids.subarray(0, -1) : ids;
}

export const wasStopped = (finishReason: string | null): boolean => finishReason !== 'abort' && finishReason !== null;

/** The tokens that a stored turn was asked with, beside their text. */
export async function alignedPrompt(
  { pieces, before, decode }: Tokenizer,
  ids: Int32Array,
  turn: Turn,
): Promise<AlignedTokens> {
  const { framing = 0, prompt } = turn.texts ?? {};
  if (prompt !== undefined)
    return alignPrompt(pieces, ids, Buffer.from(prompt, 'latin1'), turn.keeps === 0 ? before : []);
  if (framing > 0) {
    const text = Buffer.concat(Array.from(ids.subarray(framing), (id) => pieces.bytesOf(id) ?? Buffer.alloc(0)));
    return alignPrompt(pieces, ids, text, before);
  }
  return alignIds(pieces, ids) ?? alignPrompt(pieces, ids, Buffer.from(await decode([...ids])), []);
}

/** Those that it sampled. */
export function alignedAnswer({ pieces }: Tokenizer, ids: Int32Array, { texts, finishReason }: Turn): AlignedTokens {
  const isStopped = wasStopped(finishReason);
  if (texts?.answer === undefined) return alignUnseen(pieces, ids, isStopped);
  return alignSampled(pieces, ids, Buffer.from(texts.answer, 'latin1'), isStopped);
}
