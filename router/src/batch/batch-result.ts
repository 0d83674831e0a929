import type { BatchTurn } from './agent-batch.ts';

export interface BatchResult {
  readonly title: string;
  readonly seconds: number;
  readonly turns: readonly BatchTurn[];
}

const BAR = 24;

/** Rows with a bar whose length is the time of the batch. */
export function resultTable(results: readonly BatchResult[]): string {
  const longest = Math.max(...results.map(({ seconds }) => seconds));
  const head = [
    'policy',
    'batch',
    '',
    'cache hits',
    'prompt tokens computed',
    'first token p50',
    'sessions moved',
    'sent again',
    'failed',
  ];
  const rows = results.map((result) => {
    const { promptTokens, computedTokens } = tokensOf(result);
    return [
      result.title,
      `${result.seconds.toFixed(1)} s`,
      '█'.repeat(Math.max(1, Math.round((BAR * result.seconds) / longest))).padEnd(BAR),
      computedTokens === null
        ? '?'
        : `${((100 * (promptTokens - computedTokens)) / Math.max(1, promptTokens)).toFixed(1)} %`,
      `${thousands(computedTokens ?? promptTokens)} of ${thousands(promptTokens)}`,
      `${Math.round(median(result.turns.flatMap(({ answer }) => answer?.ttftMs ?? [])))} ms`,
      String(movedSessions(result)),
      String(result.turns.filter(({ attempts, answer }) => attempts > 1 && answer !== null).length),
      String(result.turns.filter(({ answer }) => answer === null).length),
    ];
  });
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]!.length)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => (i === 0 || i === 2 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
      .join('  ')
      .trimEnd();
  return [line(head), ...rows.map(line)].join('\n');
}

/** Sessions with a turn on another worker than the turn before it. */
export function movedSessions({ turns }: Pick<BatchResult, 'turns'>): number {
  const last = new Map<string, string>();
  const moved = new Set<string>();
  for (const { session, answer } of turns) {
    if (answer === null || answer.worker === '') continue;
    const before = last.get(session);
    if (before !== undefined && before !== answer.worker) moved.add(session);
    last.set(session, answer.worker);
  }
  return moved.size;
}

/** `computedTokens`: null if a response has no count of cached tokens. */
function tokensOf({ turns }: BatchResult): { promptTokens: number; computedTokens: number | null } {
  let promptTokens = 0;
  let computedTokens: number | null = 0;
  for (const { answer } of turns) {
    if (answer === null) continue;
    promptTokens += answer.promptTokens;
    if (answer.cachedTokens === null) computedTokens = null;
    else if (computedTokens !== null) computedTokens += answer.promptTokens - answer.cachedTokens;
  }
  return { promptTokens, computedTokens };
}

const thousands = (tokens: number): string => `${Math.round(tokens / 1000).toLocaleString('en')}k`;

export function median(values: readonly number[]): number {
  if (values.length === 0) return 0;
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
