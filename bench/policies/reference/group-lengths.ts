import type { Request } from '../workload.ts';

const lookBack = 128;

interface Group {
  /** Context of each session so far, in tokens. */
  readonly contexts: Map<string, { tokens: number; isFinal: boolean }>;
  answers: number;
  answerTokens: number;
}

/** How long sessions get, and groups whose sessions are alike. */
export class GroupLengths {
  readonly #finals: number[] = [];
  #finalSum = 0;
  readonly #groups = new Map<string, Group>();

  /** Mean final context of the last sessions; undefined before the first has ended. */
  get meanFinal(): number | undefined {
    return this.#finals.length > 0 ? this.#finalSum / this.#finals.length : undefined;
  }

  addFinal(tokens: number): void {
    this.#finals.push(tokens);
    this.#finalSum += tokens;
    if (this.#finals.length > lookBack) this.#finalSum -= this.#finals.shift()!;
  }

  finished({ groupId, sessionId, promptTokens, outputTokens, isLastTurn }: Request): void {
    const tokens = promptTokens + outputTokens;
    if (isLastTurn) this.addFinal(tokens);
    let group = this.#groups.get(groupId);
    if (group === undefined) {
      group = { contexts: new Map(), answers: 0, answerTokens: 0 };
      this.#groups.set(groupId, group);
    }
    group.contexts.set(sessionId, { tokens, isFinal: isLastTurn });
    group.answers += 1;
    group.answerTokens += outputTokens;
  }

  /** Mean output of the group, drawn towards that of all. */
  expectedOutput(groupId: string, meanOutput: number): number {
    const group = this.#groups.get(groupId);
    if (group === undefined) return meanOutput;
    return (group.answerTokens + 0.5 * meanOutput) / (group.answers + 0.5);
  }

  /** Final context of the group's sessions; those still open count with a good third more than they have. */
  expectedFinal({ groupId, promptTokens }: Request): number {
    const mean = this.meanFinal ?? promptTokens;
    const group = this.#groups.get(groupId);
    if (group === undefined) return mean;
    let sum = 0;
    for (const { tokens, isFinal } of group.contexts.values()) {
      sum += isFinal ? tokens : Math.max(1.3 * tokens, 0.7 * mean);
    }
    return (sum + 0.5 * mean) / (group.contexts.size + 0.5);
  }
}
