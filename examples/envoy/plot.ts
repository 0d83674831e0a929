import type { BatchTurn } from '../../router/src/batch/agent-batch.ts';

/** A turn with its time in seconds after the start of its batch. */
export interface TimedTurn extends BatchTurn {
  readonly startSeconds: number;
  readonly endSeconds: number;
}

export interface PlottedBatch {
  readonly title: string;
  /** Their workers, in an order that gives them their colours. */
  readonly engines: readonly string[];
  readonly turns: readonly TimedTurn[];
}

const WIDTH = 900;
const LEFT = 60;
const RIGHT = 20;
const TITLE = 34;
const LANE = 3;
const CURVES = 110;
const AXIS = 34;
/** Of Okabe and Ito: can be told apart without full colour vision. */
const COLORS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#000000'];
/** A turn without a response, or of an engine that is not known. */
const FAILED = '#ff0000';

/**
 * Batches one below the other with the same time axis: a lane for each session with its turns in the colours of their engines, and below it
 * the requests in flight of each engine.
 */
export function plotBatches(batches: readonly PlottedBatch[]): string {
  const turns = batches.flatMap((batch) => batch.turns);
  const seconds = Math.max(0.001, ...turns.map(({ endSeconds }) => endSeconds));
  const x = (at: number): string => (LEFT + ((WIDTH - LEFT - RIGHT) * at) / seconds).toFixed(1);
  let y = 0;
  const parts: string[] = [];
  for (const { title, engines, turns: own } of batches) {
    const color = (worker: string): string => COLORS[engines.indexOf(worker) % COLORS.length] ?? FAILED;
    const sessions = Map.groupBy(
      own.toSorted((a, b) => a.startSeconds - b.startSeconds),
      ({ session }) => session,
    );
    parts.push(text(LEFT, y + 20, title, 'font-size="14" font-weight="bold"'));
    const lanes = y + TITLE;
    let lane = 0;
    for (const turnsOfSession of sessions.values()) {
      for (const { startSeconds, endSeconds, answer } of turnsOfSession) {
        const fill = answer === null ? FAILED : color(answer.worker);
        const width = Number(x(endSeconds)) - Number(x(startSeconds));
        const box = `x="${x(startSeconds)}" y="${lanes + lane * LANE}" width="${width.toFixed(1)}"`;
        parts.push(`<rect ${box} height="${LANE - 1}" fill="${fill}"/>`);
      }
      lane += 1;
    }
    const bottom = lanes + lane * LANE + CURVES;
    parts.push(text(LEFT - 8, lanes + 10, 'sessions', 'text-anchor="end"'));
    const curves = engines.map((worker) => ({ worker, steps: stepsOf(own, worker) }));
    const most = Math.max(1, ...curves.flatMap(({ steps }) => steps.map(([, count]) => count)));
    for (const { worker, steps } of curves) {
      const path = steps.map(([at, count]) => `H${x(at)}V${(bottom - ((CURVES - 16) * count) / most).toFixed(1)}`);
      parts.push(`<path d="M${LEFT},${bottom}${path.join('')}" fill="none" stroke="${color(worker)}"/>`);
    }
    parts.push(text(LEFT - 8, bottom - CURVES + 20, String(most), 'text-anchor="end"'));
    parts.push(text(LEFT - 8, bottom, 'in flight', 'text-anchor="end"'));
    parts.push(`<path d="M${LEFT},${bottom}H${WIDTH - RIGHT}" stroke="#888888"/>`);
    for (const at of ticks(seconds)) parts.push(text(Number(x(at)), bottom + 16, `${at} s`, 'text-anchor="middle"'));
    y = bottom + AXIS;
  }
  for (let i = 0; i < Math.max(0, ...batches.map(({ engines }) => engines.length)); i++) {
    const fill = COLORS[i % COLORS.length]!;
    parts.push(`<rect x="${LEFT + i * 90}" y="${y}" width="10" height="10" fill="${fill}"/>`);
    parts.push(text(LEFT + 14 + i * 90, y + 10, `engine ${i + 1}`));
  }
  const size = `viewBox="0 0 ${WIDTH} ${y + 20}" width="${WIDTH}" height="${y + 20}"`;
  const style = 'font-family="sans-serif" font-size="11" style="background:#ffffff"';
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${style}>\n${parts.join('\n')}\n</svg>\n`;
}

/** When the number of requests of an engine changes, and to what. */
export function stepsOf(turns: readonly TimedTurn[], worker: string): [seconds: number, count: number][] {
  const own = turns.filter(({ answer }) => answer?.worker === worker);
  const changes = own.flatMap(({ startSeconds, endSeconds }) => [
    [startSeconds, 1] as const,
    [endSeconds, -1] as const,
  ]);
  let count = 0;
  return changes.toSorted(([a], [b]) => a - b).map(([at, change]) => [at, (count += change)]);
}

/** Some five round times. */
function ticks(seconds: number): number[] {
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find((each) => seconds / each <= 8) ?? 200;
  return Array.from({ length: Math.floor(seconds / step) + 1 }, (_, i) => Number((i * step).toFixed(1)));
}

const text = (x: number, y: number, words: string, rest = ''): string =>
  `<text x="${x}" y="${y}" ${rest}>${words.replaceAll('&', '&amp;').replaceAll('<', '&lt;')}</text>`;
