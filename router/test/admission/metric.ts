import type { Router } from '../../src/router.ts';

/** The value of one line of the metrics, as `name{label="value"}`. */
export async function metric(router: Pick<Router, 'metricsUrl'>, line: string): Promise<number> {
  const text = await (await fetch(router.metricsUrl)).text();
  const found = text.split('\n').find((each) => each.startsWith(`${line} `));
  if (found === undefined) throw new Error(`no metric ${line} in\n${text}`);
  return Number(found.slice(line.length + 1));
}
