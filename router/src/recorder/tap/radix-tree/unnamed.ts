import type { ExchangeView as Exchange } from '../../../phases/exchange-view.ts';
import type { Worker } from '../../../fleet/worker.ts';
import type { CaptureDialect } from '../../shared/read-request.ts';

/** Releases of SGLang before this one name only the version at the end of an answer, not the spans. */
const [MAJOR, MINOR, PATCH] = [0, 5, 19];

/** Its engine names versions token by token; of an engine that does not tell its release, too. */
export function namesSpans({ engineVersion }: Worker): boolean {
  const [, major = 1, minor = 0, patch = 0] = /^(\d+)\.(\d+)\.(\d+)/.exec(engineVersion ?? '')?.map(Number) ?? [];
  if (major !== MAJOR) return major > MAJOR;
  return minor === MINOR ? patch >= PATCH : minor > MINOR;
}

/** An answer, or a part of one that has ended, may not name the versions of its tokens, and its engine can be asked. */
export function mayBeUnnamed(x: Exchange, dialect: CaptureDialect, isStream: boolean, isAlone: boolean): boolean {
  // SGLang names versions in each event, vLLM in the last one.
  if (dialect === 'generate') return false;
  if (dialect === 'inference') return x.outcome !== null && x.outcome !== 'complete';
  return isStream || !isAlone || x.worker?.engine !== 'sglang';
}
