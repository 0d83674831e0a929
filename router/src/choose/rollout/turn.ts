import type { Lane } from './lane.ts';
import type { FirstPrompt, Group, Session } from './sessions.ts';
import type { Work } from './cost.ts';

/** One exchange as this policy sees it. Tokens. */
export class Turn implements Work {
  /** Who made it: after a change of policies there may be others. */
  readonly book: object;
  /** null: its client named none, so it stands for itself. */
  readonly session: Session | null;
  readonly group: Group;
  /** The prompt of a session's first turn, which all its prompts begin with; of what has no session, its own. */
  readonly prompt: FirstPrompt;
  readonly promptTokens: number;
  /** Expected. */
  readonly answerTokens: number;
  readonly isFirstTurn: boolean;
  readonly bodyBytes: number;
  /** Where its prompt stands in the body; '' where nobody looked. */
  readonly field: string;
  /** Where it runs now, since when, and what it was expected to take. */
  lane: Lane | null = null;
  beginMs = 0;
  prefillSecs = 0;
  queueSecs = 0;
  /** When its prompt was expected to be read (monotonic ms). */
  readByMs = 0;
  /** Its session left its home, as the sessions there had outgrown the KV cache. */
  hasGivenWay = false;

  constructor(
    book: object,
    session: Session | null,
    group: Group,
    prompt: FirstPrompt,
    promptTokens: number,
    answerTokens: number,
    bodyBytes: number,
    field: string,
  ) {
    this.book = book;
    this.session = session;
    this.group = group;
    this.prompt = prompt;
    this.promptTokens = promptTokens;
    this.answerTokens = answerTokens;
    this.isFirstTurn = session === null || session.turns === 0;
    this.bodyBytes = bodyBytes;
    this.field = field;
  }
}
