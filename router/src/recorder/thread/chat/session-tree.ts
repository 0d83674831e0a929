import type { Rendering } from './chat-template.ts';
import type { Message } from '../read/message.ts';

/** A turn of a chat: what was asked behind its parent, and the answer. */
export interface ChatTurn {
  readonly id: string;
  readonly parent: ChatTurn | null;
  readonly children: ChatTurn[];
  /** Those it adds, the answer last. */
  readonly messages: readonly Message[];
  /** One for each of them: see `messageKey`. */
  readonly keys: readonly string[];
  /** Messages up to it, its own included. */
  readonly depth: number;
  /** Turns before it. */
  readonly index: number;
  /** So many tokens of its parent's trajectory go on in this one. */
  readonly keeps: number;
  /** Those it adds: the prompt's, then the sampled ones. */
  readonly ids: Int32Array;
  /** So many of `ids`, the last ones, were sampled. */
  readonly sampled: number;
  /** The text of `ids`; null: not known. */
  readonly text: string | null;
  /** Text after that of its ids, part of what its client sends back as the answer: no sampled token has just that text. Mostly ''. */
  readonly rest: string;
  /** Its text is that of the whole trajectory: nothing of its parent's goes before it. */
  readonly isAfresh: boolean;
  /** Its answer broke off. */
  readonly isTorn: boolean;
  /** What the template was given beside the messages. */
  readonly rendering: Rendering;
}

/** The turns of one session: a tree, as histories may branch and answers may be lost and asked for again. */
export class SessionTree {
  readonly roots: ChatTurn[] = [];
  readonly turns = new Map<string, ChatTurn>();

  get newest(): ChatTurn | null {
    return [...this.turns.values()].at(-1) ?? null;
  }

  add(turn: ChatTurn): void {
    this.addBeside(turn);
    this.turns.set(turn.id, turn);
  }

  /** @param turn nothing goes on behind it */
  replace(turn: ChatTurn, by: ChatTurn): void {
    const among = turn.parent?.children ?? this.roots;
    among[among.indexOf(turn)] = by;
    this.turns.set(turn.id, by);
  }

  /**
   * The turn that a request goes on behind: the one with the most messages that the request begins with; of several the
   * newest that did not break off. null: there is none, and the request begins anew.
   */
  attach(keys: readonly string[]): ChatTurn | null {
    let best: ChatTurn | null = null;
    for (const [turn, isSame] of this.#asked(keys)) {
      if (!isSame) continue;
      const isBetter = turn.depth === best?.depth && best.isTorn && !turn.isTorn;
      if (best === null || turn.depth > best.depth || isBetter) best = turn;
    }
    return best;
  }

  /** Whether the request may as well go on behind another turn: it was asked the same, and got the same answer. */
  hasEqual(turn: ChatTurn, keys: readonly string[]): boolean {
    for (const [other, isSame] of this.#asked(keys))
      if (isSame && other.id !== turn.id && other.depth === turn.depth) return true;
    return false;
  }

  /** Turns that asked what the request begins with, and got another answer than the request has there; the deepest and newest first. */
  otherAnswers(keys: readonly string[]): ChatTurn[] {
    const others: ChatTurn[] = [];
    for (const [turn, isSame] of this.#asked(keys)) if (!isSame) others.push(turn);
    return others.toSorted((a, b) => b.depth - a.depth);
  }

  /** Puts a turn beside one with the same parent. */
  addBeside(turn: ChatTurn): void {
    (turn.parent?.children ?? this.roots).push(turn);
  }

  /** Turns that asked what the request begins with, the newest first, and whether their answer is the one in the request. */
  *#asked(keys: readonly string[]): Iterable<readonly [turn: ChatTurn, isSame: boolean]> {
    const open: ChatTurn[] = [...this.roots];
    for (let turn = open.pop(); turn !== undefined; turn = open.pop()) {
      const { depth, keys: own } = turn;
      const from = depth - own.length;
      // Something has to be new: an answer is not asked for by itself.
      if (depth >= keys.length || own.some((key, i) => i < own.length - 1 && keys[from + i] !== key)) continue;
      const isSame = own.at(-1) === keys[depth - 1];
      yield [turn, isSame];
      if (isSame) open.push(...turn.children);
    }
  }
}

/** The line from the first turn to this one. */
export function lineTo(end: ChatTurn | null): ChatTurn[] {
  const line: ChatTurn[] = [];
  for (let turn = end; turn !== null; turn = turn.parent) line.push(turn);
  return line.toReversed();
}

export const messagesUpTo = (end: ChatTurn | null): Message[] => lineTo(end).flatMap(({ messages }) => messages);

/** All tokens of the trajectory that ends with this turn. */
export function idsUpTo(end: ChatTurn | null): Int32Array {
  if (end === null) return new Int32Array(0);
  const ids = new Int32Array(end.keeps + end.ids.length);
  let left = ids.length;
  for (let turn: ChatTurn | null = end; turn !== null && left > 0; turn = turn.parent) {
    if (left <= turn.keeps) continue;
    ids.set(turn.ids.subarray(0, left - turn.keeps), turn.keeps);
    left = turn.keeps;
  }
  return ids;
}

/** The text of that trajectory in pieces; null: not known. */
export function textUpTo(end: ChatTurn | null): string[] | null {
  const pieces: string[] = [];
  for (let turn = end; turn !== null; turn = turn.parent) {
    if (turn.text === null) return null;
    pieces.push(turn.text);
    if (turn.isAfresh) break;
  }
  return pieces.toReversed();
}
