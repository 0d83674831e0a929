import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { metrics } from '../../router/src/observe/metrics.ts';
import { type Panel, rows } from './panels.ts';

/** Writes `turnout.json`, the Grafana dashboard, from the panels and the table of metrics: `npm run docs`. A test fails when they differ. */

export const dashboardFile = join(import.meta.dirname, 'turnout.json');

const COLUMNS = 3;
const WIDTH = 24 / COLUMNS;
const HEIGHT = 8;
const datasource = { type: 'prometheus', uid: '${datasource}' };

const helpOf = new Map(metrics.map(({ name, help }) => [name, help]));

/** What its metrics are, in the words of the reference. */
const describe = ({ queries }: Panel): string =>
  [...new Set(queries.flatMap(({ of }) => of))].map((name) => `${name}: ${helpOf.get(name)}`).join('\n\n');

const panelOf = (panel: Panel, id: number, x: number, y: number): object => ({
  id,
  type: 'timeseries',
  title: panel.title,
  description: describe(panel),
  datasource,
  gridPos: { h: HEIGHT, w: WIDTH, x, y },
  fieldConfig: {
    defaults: { unit: panel.unit, min: 0, custom: { fillOpacity: 10, showPoints: 'never' } },
    overrides: [],
  },
  options: { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi', sort: 'desc' } },
  targets: panel.queries.map(({ expr, legend }, i) => ({
    refId: String.fromCharCode(65 + i),
    datasource,
    expr,
    legendFormat: legend,
  })),
});

function panels(): object[] {
  const all: object[] = [];
  let y = 0;
  for (const row of rows) {
    all.push({
      id: all.length + 1,
      type: 'row',
      title: row.title,
      collapsed: false,
      gridPos: { h: 1, w: 24, x: 0, y },
    });
    y++;
    for (const [i, panel] of row.panels.entries()) {
      all.push(panelOf(panel, all.length + 1, (i % COLUMNS) * WIDTH, y + Math.floor(i / COLUMNS) * HEIGHT));
    }
    y += Math.ceil(row.panels.length / COLUMNS) * HEIGHT;
  }
  return all;
}

/** A variable with the values that a label has. */
const labelValues = (name: string, query: string): object => ({
  name,
  type: 'query',
  datasource,
  query: { query, refId: 'StandardVariableQuery' },
  refresh: 2,
  includeAll: true,
  allValue: '.*',
  multi: true,
  current: { text: 'All', value: '$__all' },
});

export function dashboard(): string {
  const json = {
    title: 'turnout',
    uid: 'turnout',
    tags: ['turnout', 'llm'],
    schemaVersion: 39,
    editable: true,
    time: { from: 'now-1h', to: 'now' },
    refresh: '30s',
    templating: {
      list: [
        { name: 'datasource', type: 'datasource', query: 'prometheus', current: {} },
        labelValues('job', 'label_values(turnout_build_info, job)'),
        labelValues('instance', 'label_values(turnout_build_info{job=~"$job"}, instance)'),
      ],
    },
    panels: panels(),
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}

if (import.meta.main) writeFileSync(dashboardFile, dashboard());
