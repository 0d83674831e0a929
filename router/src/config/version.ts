import { existsSync, readFileSync } from 'node:fs';

const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

/** The version of this package. */
export const { version } = manifest;

/** The engine versions that `npm test -- suite:real` runs against. */
export const checkedEngines = 'SGLang 0.5.23, vLLM 0.32';

/** How a user calls this program: in a checkout it is not on the PATH. */
export const commandName = existsSync(new URL('../../src', import.meta.url)) ? 'npx turnout' : 'turnout';
