import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createHash } from 'node:crypto';
import { type Environment, pythonOf as pythonOfClient, whyMissing } from '../clients/environments.ts';
import { pythonOf, whyNoEngines } from '../real/installed.ts';

const script = join(import.meta.dirname, 'adding_model.py');

/** The folder of the model that is trained: beside the Python environments, made once for each state of its script. */
export function addingModel(): string {
  const clients = dirname(dirname(dirname(pythonOfClient('skyrl'))));
  const state = createHash('sha256').update(readFileSync(script)).digest('hex').slice(0, 8);
  return join(clients, `adding-model-${state}`);
}

/** Installs what is not there yet, and makes the model. @returns why that can't be done, as node:test's `skip` takes it, else false */
export async function whyNoTraining(...environments: readonly Environment[]): Promise<string | false> {
  const say = (line: string): void => void process.stderr.write(`suite:tinker-trainers: ${line}\n`);
  const noEngines = await whyNoEngines();
  if (noEngines !== false) return noEngines;
  for (const name of environments) {
    const missing = await whyMissing(name, say);
    if (missing !== false) return missing;
  }
  const folder = addingModel();
  if (existsSync(folder)) return false;
  say(`training the first model in ${folder}, for a minute`);
  const draft = `${folder}.${process.pid}`;
  const child = spawn(pythonOf('vllm'), [script, draft], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [status] = (await once(child, 'exit')) as [number | null];
  if (status === 0 && !existsSync(folder)) renameSync(draft, folder);
  rmSync(draft, { recursive: true, force: true });
  return status === 0 ? false : `the model could not be made: ${script} exited with ${status}`;
}
