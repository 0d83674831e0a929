/** One sample in the Prometheus text format. */
export interface MetricLine {
  readonly name: string;
  /** The text between the braces. */
  readonly labels: string;
  readonly value: number;
}

/** @returns the samples that have one of these names */
export function metricLines(page: string, names: readonly string[]): MetricLine[] {
  const pattern = new RegExp(`^(${names.join('|')})(?:\\{(.*)\\})? (\\S+)`, 'gm');
  return Array.from(page.matchAll(pattern), ([, name = '', labels = '', value]) => ({
    name,
    labels,
    value: Number(value),
  }));
}

/** @returns the data-parallel rank in the labels; 0 if they name none */
export const rankIn = (labels: string, name: 'dp_rank' | 'engine'): number =>
  Number(new RegExp(`(?:^|,)${name}="(\\d+)"`).exec(labels)?.[1] ?? 0);
