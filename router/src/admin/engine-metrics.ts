import type { Hono } from 'hono';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { askText } from '../engines/ask.ts';
import type { WorkersContext } from './workers/context.ts';

interface Family {
  /** Its HELP and TYPE lines. */
  readonly head: string[];
  readonly samples: string[];
}

/** `GET /engine_metrics`: the Prometheus metrics of all engines on one page, each sample with the URL of its engine. */
export function addEngineMetrics(app: Hono, { fleet, healthTimeoutMs }: WorkersContext): void {
  app.get('/engine_metrics', async (c) => {
    const engines = new Map(fleet.workers.map((worker) => [worker.engineUrl, worker]));
    const pages = await Promise.all(
      Array.from(engines, async ([url, worker]) => ({
        url,
        page: await askText(worker.asker(healthTimeoutMs()), '/metrics'),
      })),
    );
    const merged = new MergedMetrics();
    for (const { url, page } of pages) {
      if (page === null) continue;
      merged.add(url, page);
      // The page of one engine has up to 1 MB.
      await nextTurn();
    }
    if (merged.isEmpty && engines.size > 0) {
      return c.text('No engine answers GET /metrics: SGLang needs --enable-metrics, vLLM serves it always.\n', 503);
    }
    return c.body(merged.text(), 200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' });
  });
}

/** Pages in the Prometheus text format (0.0.4), merged so that the samples of each metric are together, as the format demands. */
export class MergedMetrics {
  readonly #families = new Map<string, Family>();

  get isEmpty(): boolean {
    return this.#families.size === 0;
  }

  /** @param url of the engine: the label `worker_addr` of its samples, as sglang-router names it */
  add(url: string, page: string): void {
    const label = `worker_addr="${url.replaceAll(/["\\]/g, '\\$&')}"`;
    let family: Family | null = null;
    for (const line of page.split('\n')) {
      const [, about, name] = /^# (HELP|TYPE) ([a-zA-Z_:][\w:]*) /.exec(line) ?? [];
      if (name !== undefined) {
        family = this.#familyOf(name);
        if (!family.head.some((each) => each.startsWith(`# ${about} `))) family.head.push(line.trimEnd());
        continue;
      }
      // Any other line, for example of an HTML page, would make the merged page invalid.
      const [, own = '', labels = '', value] = SAMPLE.exec(line) ?? [];
      if (value === undefined) continue;
      // The samples of a histogram have its name and a suffix; they come after its TYPE.
      if (family === null || !isOf(own, nameOf(family))) family = this.#familyOf(own);
      family.samples.push(`${own}{${label}${labels === '' ? '' : `,${labels}`}} ${value}`);
    }
  }

  text(): string {
    return Array.from(this.#families.values(), ({ head, samples }) => `${[...head, ...samples].join('\n')}\n`).join(
      '\n',
    );
  }

  #familyOf(name: string): Family {
    let family = this.#families.get(name);
    if (family === undefined) this.#families.set(name, (family = { head: [], samples: [] }));
    return family;
  }
}

/** Name, labels, and value with its time; an exemplar after them is left out. */
const SAMPLE =
  /^([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+((?:[+-]?(?:[\d.]+(?:[eE][+-]?\d+)?|Inf)|NaN)(?:[ \t]+-?\d+)?)\s*(?:#.*)?$/;
const SUFFIXES = ['', '_bucket', '_sum', '_count', '_total', '_created'];
const isOf = (sample: string, family: string): boolean => SUFFIXES.some((suffix) => sample === family + suffix);

/** Without HELP and TYPE lines: the name of the first sample. */
const nameOf = ({ head, samples }: Family): string =>
  head[0]?.split(' ', 3)[2] ?? samples[0]?.slice(0, samples[0].search(/[{\s]/)) ?? '';
