import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { metrics } from '../../router/src/observe/metrics.ts';
import { type Alert, alerts } from './alerts.ts';

/** Writes `turnout-alerts.yaml`, the rules for Prometheus and for the chart's PrometheusRule: `npm run docs`. A test fails when they differ. */

export const alertsFile = join(import.meta.dirname, 'turnout-alerts.yaml');

const names = new Set(metrics.map(({ name }) => name));

/** Throws if the expression reads a metric that is not in the table. */
function ruleOf({ alert, expr, for: duration, severity, summary, description }: Alert): object {
  for (const [name] of expr.matchAll(/turnout_\w+/g)) {
    if (!names.has(name)) throw new Error(`${alert}: ${name} is not in the table of metrics`);
  }
  return { alert, expr, for: duration, labels: { severity }, annotations: { summary, description } };
}

export const alertRules = (): string =>
  `# Alerts of turnout for Prometheus (rule_files). Generated: npm run docs.\n${stringify(
    { groups: [{ name: 'turnout', rules: alerts.map(ruleOf) }] },
    { lineWidth: 0, singleQuote: true },
  )}`;

if (import.meta.main) writeFileSync(alertsFile, alertRules());
