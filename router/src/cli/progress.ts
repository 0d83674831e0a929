import { MultiBar, type SingleBar } from 'cli-progress';

export interface Step {
  readonly done: number;
  /** null: not known; then there is no bar. */
  readonly total: number | null;
  readonly text: string;
}

export interface Progress {
  say(line: string): void;
  stop(): void;
}

/** The error output of a command, or a test's. */
export interface Screen {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const LINE_MS = 2_000;
const REDRAW_MS = 100;
const BAR = 24;

/**
 * Shows the progress of a long command: a bar for each part on a terminal; elsewhere the lines that have changed, every two seconds.
 * It goes to stderr, so that the output of the command can be piped.
 *
 * @param look the parts of the command by name, and how far each of them is
 */
export function showProgress(
  look: () => Readonly<Record<string, Step>>,
  screen: Screen & NodeJS.WritableStream = process.stderr,
): Progress {
  return screen.isTTY === true ? bars(look, screen) : lines(look, screen);
}

function lines(look: () => Readonly<Record<string, Step>>, screen: Screen): Progress {
  const shown = new Map<string, string>();
  const say = (line: string): void => void screen.write(`${line}\n`);
  const timer = setInterval(() => {
    for (const [name, { text }] of Object.entries(look())) {
      if (shown.get(name) !== text) say(`${name}: ${text}`);
      shown.set(name, text);
    }
  }, LINE_MS);
  return { say, stop: () => clearInterval(timer) };
}

function bars(look: () => Readonly<Record<string, Step>>, screen: Screen & NodeJS.WritableStream): Progress {
  const rows = new Map<string, SingleBar>();
  const all = new MultiBar({
    stream: screen,
    // The control sequences of these two would stay in force after Ctrl-C.
    hideCursor: false,
    linewrap: true,
    // The library's handler would keep SIGINT from ending the command.
    gracefulExit: false,
    clearOnComplete: true,
    emptyOnZero: true,
    // A line above the bars moves them.
    forceRedraw: true,
    barsize: BAR,
    format(_options, { progress }, { name, text, hasTotal }: Row) {
      const filled = Math.round(Math.min(1, Math.max(0, progress)) * BAR);
      const bar = hasTotal ? `${'█'.repeat(filled)}${'░'.repeat(BAR - filled)}  ` : '';
      return `${name}  ${bar}${text}`.slice(0, (screen.columns ?? 80) - 1);
    },
  });
  const update = (): void => {
    for (const [name, { done, total, text }] of Object.entries(look())) {
      const row: Row = { name, text, hasTotal: total !== null };
      const bar = rows.get(name);
      if (bar === undefined) rows.set(name, all.create(total ?? 0, done, row));
      else {
        bar.setTotal(total ?? 0);
        bar.update(done, row);
      }
    }
  };
  // Other output starts at the beginning of the line and replaces the bar, which is drawn again below it.
  all.on('redraw-post', () => screen.write('\r'));
  const timer = setInterval(update, REDRAW_MS);
  update();
  let isStopped = false;
  return {
    say(line) {
      if (isStopped) screen.write(`${line}\n`);
      else {
        all.log(`${line}\n`);
        all.update();
      }
    },
    stop() {
      isStopped = true;
      clearInterval(timer);
      all.stop();
    },
  };
}

interface Row {
  readonly name: string;
  readonly text: string;
  readonly hasTotal: boolean;
}
