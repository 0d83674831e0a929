import { identityOf } from '../../src/engines/weight-label.ts';
import { partsOf } from '../exact/parts.ts';
import type { Row, RowTurn } from '../exact/journal.ts';
import type { Sampled } from './fleet.ts';

/** The router's name of the weights of an engine's start. */
const BASE = 'base';

interface SoakTurn extends RowTurn {
  readonly seams: readonly { readonly at: number; readonly worker: string }[];
}

/** What was compared with the engines' log. */
export class Verdict {
  turns = 0;
  tokens = 0;
  /** Tokens of turns that no engine sampled so. */
  wrongTokens = 0;
  wrongLogprobs = 0;
  wrongVersions = 0;
  unknownVersions = 0;
  /** Where another engine continued a turn. */
  seams = 0;
  /** Complete responses whose turn is not on record, or shorter than its client got. */
  missing = 0;
  tinkerTokens = 0;
  readonly examples: string[] = [];

  get isClean(): boolean {
    return this.wrongTokens + this.wrongLogprobs + this.wrongVersions + this.missing === 0;
  }

  says(example: string): void {
    if (this.examples.length < 20) this.examples.push(example);
  }
}

/** A part of a turn that one engine sampled. */
interface Segment {
  readonly worker: string;
  readonly from: number;
  readonly to: number;
}

function segmentsOf({ seams, worker, sampled, tokens, output_tokens: outputTokens }: SoakTurn): Segment[] {
  // A seam is a position among all tokens that the turn adds, those of its prompt too.
  const ends = [...seams.map(({ at }) => at - (tokens - outputTokens)), sampled.length];
  return ends.map((to, i) => ({ worker: seams[i]?.worker ?? worker, from: ends[i - 1] ?? 0, to }));
}

/** A response that its client got to its end. */
export interface Whole {
  readonly name: string;
  readonly choices: number;
}

const startOf = ({ keeps, tokens, output_tokens }: SoakTurn): number => keeps + tokens - output_tokens;

/**
 * How many choices of complete responses are not on record to their ends.
 *
 * @param of what engines sampled for the request of a name
 */
export function missingOf(
  rows: readonly Row[],
  whole: readonly Whole[],
  of: (name: string) => readonly Sampled[],
): number {
  const turns = new Map(rows.flatMap((row) => row.turns.map((turn) => [turn.id, turn as SoakTurn])));
  const ends = [...turns.values()].map((turn) => {
    const { worker, from } = segmentsOf(turn).at(-1)!;
    return [worker, startOf(turn) + from, ...turn.sampled.slice(from)].join();
  });
  let missing = 0;
  for (const { name, choices } of whole) {
    let found = 0;
    for (const { engineUrl, inputIds, outputIds } of of(name)) {
      const at = ends.indexOf([engineUrl, inputIds.length, ...outputIds].join());
      if (at === -1 || found === choices) continue;
      // Requests that are equal sample the same: each has its own turn.
      ends.splice(at, 1);
      found++;
    }
    missing += choices - found;
  }
  return missing;
}

/**
 * Compares the rows of a session with what engines did for its requests.
 *
 * @param sampled of all requests of the session
 */
export function compare(rows: readonly Row[], sampled: readonly Sampled[], verdict: Verdict): void {
  const seen = new Set<string>();
  for (const row of rows) {
    for (const part of partsOf(row)) {
      const turn = part.turn as SoakTurn;
      if (seen.has(turn.id)) continue;
      seen.add(turn.id);
      verdict.turns++;
      verdict.tokens += turn.sampled.length;
      verdict.seams += turn.seams.length;
      const start = startOf(turn);
      for (const segment of segmentsOf(turn)) {
        const { worker, from, to } = segment;
        const ids = turn.sampled.slice(from, to);
        const own = sampled.find(
          ({ engineUrl, inputIds, outputIds, logprobs }) =>
            engineUrl === worker &&
            inputIds.length === start + from &&
            ids.every((id, i) => id === outputIds[i]) &&
            row.rollout_log_probs.slice(start + from, part.to).every((one, i) => {
              return i >= ids.length || one === null || one === logprobs[i];
            }),
        );
        if (own === undefined) {
          verdict.wrongTokens += ids.length;
          verdict.says(`session ${row.session}, turn ${turn.id}: no engine sampled its tokens ${from} to ${to}`);
          continue;
        }
        // Later turns may keep less of it.
        for (let i = from; i < Math.min(to, part.to - start); i++) {
          const at = start + i;
          const version = row.versions.find((span) => span.from <= at && at < span.to)?.version ?? null;
          const truth = own.versions[i - from]!;
          if (version === null) verdict.unknownVersions++;
          else if (identityOf(version, BASE) !== identityOf(truth, BASE)) {
            verdict.wrongVersions++;
            verdict.says(`session ${row.session}, turn ${turn.id}: token ${i} has ${version}, its engine had ${truth}`);
          }
        }
      }
    }
  }
}
