import { isDeepStrictEqual } from 'node:util';
import type { TokenPieces } from '../tokens/pieces.ts';
import type { Drift } from '../../shared/turn.ts';
import type { ChatTemplate, Rendering } from './chat-template.ts';
import type { Message } from '../read/message.ts';
import { type ChatTurn, messagesUpTo, textUpTo } from './session-tree.ts';

/** The parts of a request's prompt. */
export interface Continuation {
  /** How many recorded tokens are kept; with `isAfresh` those that turn out to be equal. */
  readonly keeps: number;
  /** The text after them. */
  readonly text: string;
  /** `text` is the whole prompt. */
  readonly isAfresh: boolean;
  readonly drift: Drift['kind'] | null;
}

/** Replaces an answer in a rendering: no template and no model has such a text. */
const MARK = '\u2060answer\u2060of\u2060nobody\u2060';

/**
 * The prompt of a request that continues a turn. Recorded tokens stay as they were sampled, whatever text the template would render, as
 * long as the template does not change earlier messages; only new messages are rendered and encoded.
 */
export function continueBehind(
  parent: ChatTurn | null,
  added: readonly Message[],
  template: ChatTemplate,
  rendering: Rendering,
  pieces: Pick<TokenPieces, 'bytesOf' | 'isSpecial'>,
): Continuation {
  const history = messagesUpTo(parent);
  const full = template.render([...history, ...added], rendering, true);
  if (parent === null) return { keeps: 0, text: full, isAfresh: true, drift: null };
  const tokens = parent.keeps + parent.ids.length;

  // The usual case: the rendering begins with the text of the record.
  const known = lengthOfKnown(full, textUpTo(parent));
  if (known >= 0)
    return { keeps: tokens, text: full.slice(known), isAfresh: false, drift: parent.rest === '' ? null : 'text' };

  // Or only the answer differs (parsed tool calls, half a character, reasoning): its end is found with a known answer.
  const before = template.render(history, rendering, false);
  const closing = closingOf(template, history, rendering);
  // Most templates put tools before all messages, and the record begins with the earlier tools.
  const isOther =
    !isDeepStrictEqual(parent.rendering, rendering) && template.render(history, parent.rendering, false) !== before;
  if (isOther || !full.startsWith(before) || closing === null || !before.endsWith(closing)) {
    return { keeps: 0, text: full, isAfresh: true, drift: 'template' };
  }
  const rest = parent.rest + closing + full.slice(before.length);
  if (parent.rest !== '') return { keeps: tokens, text: rest, isAfresh: false, drift: 'text' };
  const last = parent.ids.at(-1);
  const literal = last !== undefined && pieces.isSpecial(last) ? (pieces.bytesOf(last)?.toString() ?? '') : '';
  if (rest.startsWith(literal)) {
    return { keeps: tokens, text: rest.slice(literal.length), isAfresh: false, drift: null };
  }
  // The model ended its answer with another token than the template does: the next prompt does not have it.
  return { keeps: tokens - 1, text: rest, isAfresh: false, drift: 'tokens' };
}

/** How much of a text is in the record; -1: they differ. */
function lengthOfKnown(full: string, pieces: readonly string[] | null): number {
  if (pieces === null) return -1;
  let at = 0;
  for (const piece of pieces) {
    if (!full.startsWith(piece, at)) return -1;
    at += piece.length;
  }
  return at;
}

/** What the template writes after an answer; null: not known. */
function closingOf(template: ChatTemplate, history: readonly Message[], rendering: Rendering): string | null {
  const { role } = history.at(-1)!;
  try {
    const text = template.render([...history.slice(0, -1), { role, content: MARK }], rendering, false);
    const at = text.lastIndexOf(MARK);
    return at < 0 ? null : text.slice(at + MARK.length);
  } catch {
    return null;
  }
}
