import type { BlockChain } from './block-hashes.ts';
import type { CacheNode } from './kv-cache.ts';
import type { Request, Segment, Session, Turn } from './workload.ts';

/** A request with the state of its client and its engine. */
export class Job implements Request {
  readonly id: number;
  readonly session: Session;
  readonly plan: Turn;
  readonly turn: number;
  readonly segments: readonly Segment[];
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly arrivedAt: number;
  retries = 0;

  /** Engine it was sent to last; -1 before. */
  engine = -1;
  /** When it was sent there, in seconds. */
  sentAt = 0;
  /** When it had its first token, in seconds; NaN before. Kept when the engine is lost. */
  firstTokenAt = Number.NaN;

  // State of the engine:
  /** Tokens generated; while it decodes only `finishStep` is kept up to date. */
  generated = 0;
  prefillLeft = 0;
  finishStep = 0;
  nodes: readonly CacheNode[] = [];

  constructor(id: number, session: Session, turn: number, now: number) {
    const plan = session.turns[turn]!;
    this.id = id;
    this.session = session;
    this.plan = plan;
    this.turn = turn;
    this.segments = plan.prompt;
    this.promptTokens = plan.promptTokens;
    this.outputTokens = plan.outputTokens;
    this.arrivedAt = now;
  }

  get sessionId(): string {
    return this.session.id;
  }

  get groupId(): string {
    return this.session.group;
  }

  get blocks(): BlockChain {
    return this.session.blocks;
  }

  get answered(): readonly Segment[] {
    return this.plan.answered;
  }

  get isLastTurn(): boolean {
    return this.turn === this.session.turns.length - 1;
  }

  /** Removes it from a failed engine: nothing generated is kept. */
  reset(): void {
    this.generated = 0;
    this.prefillLeft = 0;
    this.nodes = [];
  }
}
