import { ConfigError } from '../config/load.ts';
import { pairKind } from '../config/pairs.ts';
import { EngineGroup } from '../launch/engine-group.ts';
import { type EngineCommand, pythonCommand } from '../launch/engine-command.ts';
import { wordsOf } from '../launch/placeholders.ts';
import { plan } from '../launch/plan.ts';
import { findGpus, findPorts } from '../launch/host-resources.ts';
import type { ReadConfig } from './configured.ts';
import type { LaunchFlags } from './launch-flags.ts';
import { serve } from './serve.ts';
import { simCommand } from './sim.ts';

/** An engine that served for a minute has valid arguments. */
const SOUND_MS = 60_000;

/** Runs engines and a router for them. @param readConfig as for `serve` */
export async function launch(flags: LaunchFlags, engineArgs: readonly string[], readConfig: ReadConfig): Promise<void> {
  const config = readConfig();
  const pairs = config.vllmPdDisaggregation ? '--vllm-pd-disaggregation' : '--pd-disaggregation';
  if (pairKind(config) !== null)
    throw new ConfigError(
      `${pairs}: not possible with launch, whose engines serve whole requests. Start prefill and decode engines yourself, and then turnout with ${pairs}, --prefill and --decode`,
    );
  const count = whole('--dp-size', flags.dpSize, 1, 512);
  const command = commandOf(flags, engineArgs);
  let engines: EngineGroup;
  try {
    const base = whole('--engine-base-port', flags.engineBasePort, 1, 65_535);
    const { port, adminPort, prometheusPort, pickerPort, pickerHealthPort } = config;
    const reserved = [port, adminPort, prometheusPort, pickerPort, pickerHealthPort].map(Number);
    const ports = await findPorts(base, count, { step: command.portStep, reserved });
    const gpus = command.gpus === 0 ? null : await findGpus(flags.gpus, process.env);
    const gpusPerEngine = whole('--gpus-per-engine', flags.gpusPerEngine, 0, 1_024);
    engines = new EngineGroup(plan(command, { ports, gpus, gpusPerEngine }, process.env), {
      restarts: {
        firstMs: 1_000,
        maxMs: 30_000,
        soundMs: SOUND_MS,
        giveUpMs: whole('--engine-give-up-secs', flags.engineGiveUpSecs, 0, 1_000_000) * 1000,
      },
      stopMs: whole('--engine-stop-secs', flags.engineStopSecs, 0, 100_000) * 1000,
      logDir: config.logDir ?? 'turnout-logs',
      logMaxBytes: config.logMaxBytes,
      logMaxFiles: config.logMaxFiles,
      // Elsewhere the output of engines must not wait for a reader, as it would in stderr.
      ...(process.stderr.isTTY ? { showProgress: (await import('./progress.ts')).showProgress } : {}),
    });
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError((error as Error).message);
  }
  const urls = engines.engines.map(({ plan: { url } }) => url);
  await serve((now) => {
    const named = now?.workerUrls.filter((url) => !urls.includes(url)) ?? [];
    const read = readConfig(now === undefined ? now : { ...now, workerUrls: named });
    return { ...read, workerUrls: [...urls, ...read.workerUrls] };
  }, engines);
}

function commandOf(flags: LaunchFlags, args: readonly string[]): EngineCommand {
  const { engine, engineCommand = '' } = flags;
  if (engine === 'sim') {
    const idle = meaninglessForSim(flags);
    if (idle !== undefined) throw new ConfigError(`${idle}: not possible with simulated engines`);
    return simCommand(args);
  }
  if (engine !== 'sglang' && engine !== 'vllm') throw new ConfigError('--engine: sglang, vllm or sim');
  let words: string[];
  try {
    words = wordsOf(engineCommand);
  } catch (error) {
    throw new ConfigError(`--engine-command: ${(error as Error).message}`);
  }
  // Without its value, which may be a key.
  const [variable] = /^\w+=/.exec(words[0] ?? '') ?? [];
  if (variable !== undefined)
    throw new ConfigError(`--engine-command: ${variable}… is no program: begin with "env" to set variables`);
  return pythonCommand(engine, args, words);
}

/** A flag that applies only to Python engines. */
function meaninglessForSim({ gpus, gpusPerEngine, engineCommand }: LaunchFlags): string | undefined {
  if (gpus !== undefined) return '--gpus';
  if (Number(gpusPerEngine) !== 0) return '--gpus-per-engine';
  return engineCommand === undefined ? undefined : '--engine-command';
}

function whole(flag: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new ConfigError(`${flag}: a whole number from ${least} to ${most}`);
}
