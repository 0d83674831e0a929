import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';

/** For each of its two halves. V8's own limit on Node 24 is 64 MB. */
const ENOUGH_MB = 16;
const LOOK_MS = 250;
const SIZE_FLAGS = /--(?:max|min)[-_]semi[-_]space[-_]size|--semi[-_]space[-_]growth[-_]factor/;

/**
 * Limits V8's young generation, which V8 doubles each time that as much as it holds survived collections. A process
 * whose objects mostly die soon gains nothing from that. Its limit can only be set when Node starts; the growth factor
 * is read each time that it grows.
 */
export class YoungGeneration {
  #mayGrow = true;

  /** To be called a few times a second: V8 shrinks the young generation when there is little work. */
  look(): void {
    const mayGrow = halfBytes() < ENOUGH_MB * 2 ** 20;
    if (mayGrow === this.#mayGrow) return;
    this.#mayGrow = mayGrow;
    setFlagsFromString(`--semi-space-growth-factor=${mayGrow ? 2 : 1}`);
  }
}

/** Only if the process is the router's own and no size was given. */
export function keepYoungGenerationSmall(): void {
  if (SIZE_FLAGS.test([process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' '))) return;
  // The factor applies to all threads, so later threads begin with a large young generation that they may never use.
  setFlagsFromString(`--min-semi-space-size=${ENOUGH_MB}`);
  const young = new YoungGeneration();
  setInterval(() => young.look(), LOOK_MS).unref();
}

const halfBytes = (): number =>
  (getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0) / 2;
