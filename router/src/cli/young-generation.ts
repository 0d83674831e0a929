import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';

/** Of each of its two halves. V8's own limit on Node 24 is 64 MB. */
const ENOUGH_MB = 16;
const LOOK_MS = 250;
const SIZE_FLAGS = /--(?:max|min)[-_]semi[-_]space[-_]size|--semi[-_]space[-_]growth[-_]factor/;

/**
 * Keeps V8's young generation from growing further. V8 doubles it each time that as much as it holds has lived through collections,
 * and writes all of it before it collects: a process that soon forgets nearly everything grows for long, and gains nothing.
 * Its limit can only be set when Node starts; the factor by which it grows is read each time that it does.
 */
export class YoungGeneration {
  #mayGrow = true;

  /** To be called a few times a second: V8 makes it small again when little is to be done. */
  look(): void {
    const mayGrow = halfBytes() < ENOUGH_MB * 2 ** 20;
    if (mayGrow === this.#mayGrow) return;
    this.#mayGrow = mayGrow;
    setFlagsFromString(`--semi-space-growth-factor=${mayGrow ? 2 : 1}`);
  }
}

/** For a process that is the router's own, unless whoever started it has said how large. */
export function keepYoungGenerationSmall(): void {
  if (SIZE_FLAGS.test([process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' '))) return;
  // The factor is that of all threads: those that are started from now on begin with enough, a part of which they may never write.
  setFlagsFromString(`--min-semi-space-size=${ENOUGH_MB}`);
  const young = new YoungGeneration();
  setInterval(() => young.look(), LOOK_MS).unref();
}

const halfBytes = (): number =>
  (getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0) / 2;
