import { createServer } from 'node:net';
import { ConfigError } from '../../config/load.ts';
import type { Config } from '../../config/options.ts';
import { openFileLimit } from '../../wire/open-files.ts';
import { checkStart } from '../check-start.ts';
import { type Finding, note, ok, problem } from './finding.ts';

/** A client and an engine connection for each of some thousand streams. */
const FEW_FILES = 8_192;

/** Checks Node.js, ports, limits, and every file that a start reads. */
export async function checkMachine(config: Config): Promise<Finding[]> {
  const files = openFileLimit();
  return [
    ok(`Node.js ${process.versions.node}`),
    await checkPort(config.host, config.port, '--port', config.reusePort),
    await checkPort(config.prometheusHost, config.prometheusPort, '--prometheus-port', config.reusePort),
    ...(config.adminPort === undefined
      ? []
      : [await checkPort(config.adminHost, config.adminPort, '--admin-port', config.reusePort)]),
    files < FEW_FILES
      ? note(
          `open files: ${files} at most, which is about ${Math.floor(files / 2)} requests in flight; raise it with ulimit -n`,
        )
      : ok(`open files: ${files} at most`),
    await checkConfiguration(config),
  ];
}

/** Loads plugins, policies, tokenizer, keys, certificates and folders, as a start does. */
async function checkConfiguration(config: Config): Promise<Finding> {
  try {
    await checkStart(config);
    return ok('all files of the configuration can be loaded (plugins, policy, tokenizer, keys, certificates, folders)');
  } catch (error) {
    if (error instanceof ConfigError) return problem(error.message);
    throw error;
  }
}

function checkPort(host: string, port: number, flag: string, reusePort: boolean): Promise<Finding> {
  if (port === 0) return Promise.resolve(ok(`${flag} 0: any free port`));
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(problem(`${flag} ${port} on ${host} can't be listened on (${code}): choose another`)),
    );
    server.listen({ port, host, reusePort }, () =>
      server.close(() => resolve(ok(`${flag} ${port} on ${host} is free`))),
    );
  });
}
