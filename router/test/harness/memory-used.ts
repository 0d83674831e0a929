import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes in V8's heap and of what is allocated for it beside, after everything that can go went. */
export function memoryUsed(): number {
  // Twice: what is beside the heap is let go behind the first.
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
