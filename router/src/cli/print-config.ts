import type { OptionSpec } from '../config/options/option.ts';
import { type Config, type OptionName, kebab, options } from '../config/options.ts';
import { isSecret } from '../config/value-messages.ts';

/** The configuration as a YAML file for `--config`; comments name the source of each value. */
export function printedConfig(config: Config, origins: ReadonlyMap<OptionName, string>): string {
  const lines: string[] = [];
  let group = '';
  for (const [name, spec] of Object.entries(options) as [OptionName, OptionSpec][]) {
    if (spec.group !== group) lines.push(...(group === '' ? [] : ['']), `# ${(group = spec.group)}`);
    const value = config[name];
    const shown = isSecret(name) && value !== undefined ? '"(not shown)"' : JSON.stringify(value);
    const line = shown === undefined ? `# ${kebab(name)}:` : `${kebab(name)}: ${shown}`;
    lines.push(`${line}  # ${shown === undefined ? 'not set' : origins.get(name)}`);
  }
  return `${lines.join('\n')}\n`;
}
