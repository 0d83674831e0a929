import type { WorkerState } from './worker-state.ts';
import type { FirstPrompt, Group, OpenSession } from './open-sessions.ts';
import type { Work } from './cost.ts';

/** One exchange as the rollout policy sees it. Lengths are in tokens. */
export class RolloutRequest implements Work {
  /** The tracker that made it: after a change of policies it may be another policy's. */
  readonly tracker: object;
  /** null if the client named no session. */
  readonly session: OpenSession | null;
  readonly group: Group;
  /**
   * The prompt of the session's first turn, with which all its prompts begin; without a session, that of the request.
   */
  readonly prompt: FirstPrompt;
  readonly promptTokens: number;
  /** Expected. */
  readonly answerTokens: number;
  readonly isFirstTurn: boolean;
  readonly bodyBytes: number;
  /** The field of the body that holds the prompt; '' if the body was not read. */
  readonly field: string;
  /** Where it runs, since when, and the times that were expected. */
  placedAt: WorkerState | null = null;
  beginMs = 0;
  prefillSecs = 0;
  queueSecs = 0;
  /** When its prompt was expected to be read (monotonic ms). */
  readByMs = 0;
  /** Its session left its home because the sessions there had outgrown the KV cache. */
  hasGivenWay = false;

  constructor(
    tracker: object,
    session: OpenSession | null,
    group: Group,
    prompt: FirstPrompt,
    promptTokens: number,
    answerTokens: number,
    bodyBytes: number,
    field: string,
  ) {
    this.tracker = tracker;
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
