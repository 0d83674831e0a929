/** One line of a page of Prometheus metrics. */
export interface MetricLine {
  readonly name: string;
  /** What is between the braces, as it was written. */
  readonly labels: string;
  readonly value: number;
}

/** @returns the lines of a page of metrics that have one of these names */
export function metricLines(page: string, names: readonly string[]): MetricLine[] {
  const pattern = new RegExp(`^(${names.join('|')})(?:\\{(.*)\\})? (\\S+)`, 'gm');
  return Array.from(page.matchAll(pattern), ([, name = '', labels = '', value]) => ({
    name,
    labels,
    value: Number(value),
  }));
}

/** @returns the number of a data-parallel rank in labels; 0 where they name none */
export const rankIn = (labels: string, name: 'dp_rank' | 'engine'): number =>
  Number(new RegExp(`(?:^|,)${name}="(\\d+)"`).exec(labels)?.[1] ?? 0);
