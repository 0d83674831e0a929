import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Config } from '../../config/options.ts';
import type { Asker, Reply } from '../../engines/ask.ts';
import { askJson } from '../../engines/ask.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { engineRequest, samplePath } from '../../tinker/engine-request.ts';
import { readAnswer } from '../../tinker/read-answer.ts';
import type { Sample } from '../../tinker/sample.ts';
import { type Finding, note, ok, problem } from './finding.ts';

/** The default limit of vLLM. */
const TOP = 20;

const TIMEOUT_MS = 10_000;

interface Checked {
  readonly facts: EngineFacts;
  readonly asker: Asker;
  readonly post: (path: string, json: string) => Promise<Reply>;
}

/** Samples as the Tinker API does: what fails here fails for its clients. */
export async function checkTinkerWorker({ facts, asker, post }: Checked, config: Config): Promise<Finding[]> {
  const path = samplePath({ engine: facts.kind }, config.tinkerVllmApi);
  const whyNot = async (more: Partial<Sample>): Promise<string | null> => {
    const sample = { ...plain, baseModel: facts.model ?? '', ...more };
    const served = { model: sample.baseModel, adapter: null, inPairs: false };
    const body = Buffer.concat(engineRequest(path, sample, served)).toString();
    const reply = await post(path, body).catch((error: unknown) => (error as Error).message);
    if (typeof reply === 'string') return `${path} sent no response (${reply})`;
    if (reply.status !== 200) return `${path} answers ${reply.status} ${reply.text.slice(0, 200)}`;
    const result = readAnswer(Buffer.from(reply.text), sample);
    if ('problem' in result) return result.problem;
    const counts = result.topPrompt?.slice(1).map((row) => row?.length ?? 0) ?? [];
    const fewest = Math.min(sample.topPrompt, ...counts);
    return fewest < sample.topPrompt ? `${path} returns ${fewest} of ${sample.topPrompt}` : null;
  };
  const unable = await whyNot({});
  if (unable !== null) return [problem(`Tinker: does not sample from prompts of token ids: ${unable}`)];
  const noLogprobs = await whyNot({ wantsPromptLogprobs: true });
  const noTop = noLogprobs ?? (await whyNot({ wantsPromptLogprobs: true, topPrompt: TOP }));
  return [
    ok(`Tinker: ${path} samples from prompts of token ids, with ids and logprobs`),
    noLogprobs === null
      ? ok('Tinker: returns logprobs of prompts')
      : note(`Tinker: returns no logprobs of prompts, so compute_logprobs() fails: ${noLogprobs}`),
    noTop === null
      ? ok(`Tinker: returns the ${TOP} likeliest tokens of each position of a prompt`)
      : note(
          `Tinker: topk_prompt_logprobs=${TOP} fails: ${noTop}${facts.kind === 'vllm' ? ` (vLLM: --max-logprobs ${TOP})` : ''}`,
        ),
    await checkAdapters({ facts, asker, post }, config),
  ];
}

const plain: Sample = {
  samplingSession: '',
  seqId: '',
  baseModel: '',
  modelPath: '',
  count: 2,
  prompt: Buffer.from('100,101,102'),
  promptTokens: 3,
  params: { maxTokens: 2, temperature: 1, topK: -1, topP: 1, seed: 1, stop: null },
  wantsPromptLogprobs: false,
  topPrompt: 0,
  topSampled: 0,
};

/** Whether adapters can be loaded while the engine runs; none is loaded to find out. */
async function checkAdapters({ facts: { kind }, asker }: Checked, config: Config): Promise<Finding> {
  const lacks = config.tinkerWeights === undefined ? note : problem;
  if (kind === 'sglang') {
    const info = await askJson(asker, '/server_info');
    if (info?.['enable_lora'] === true) return ok('Tinker: loads LoRA adapters');
    return lacks('Tinker: does not load LoRA adapters, which tinker:// paths need: start it with --enable-lora');
  }
  // FastAPI answers 405 for a path that takes POST only.
  const { status } = await asker('/v1/load_lora_adapter').catch(() => ({ status: 0 }));
  if (status === 405) return ok('Tinker: loads LoRA adapters, if it runs with --enable-lora');
  return lacks(
    'Tinker: does not load LoRA adapters, which tinker:// paths need: start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True',
  );
}

/** Checks the directory of checkpoints and the trainer. */
export async function checkTinker({ tinkerWeights, tinkerTrainer }: Config): Promise<Finding[]> {
  const findings: Finding[] = [];
  if (tinkerWeights !== undefined) {
    const directory = dirname(tinkerWeights.slice(0, tinkerWeights.indexOf('{') + 1));
    const isThere = (await stat(directory).catch(() => null))?.isDirectory() === true;
    findings.push(
      isThere ? ok(`${directory} exists (--tinker-weights)`) : problem(`--tinker-weights: ${directory} does not exist`),
    );
  }
  if (tinkerTrainer !== undefined) {
    const url = `${tinkerTrainer.replace(/\/+$/, '')}/api/v1/get_server_capabilities`;
    const status = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) }).then(
      (response) => response.status,
      (error: unknown) => String((error as Error).cause ?? error),
    );
    // A trainer with keys refuses a request without one.
    const isThere = status === 200 || status === 401 || status === 403;
    findings.push(
      isThere
        ? ok(`the trainer ${tinkerTrainer} answers`)
        : problem(`--tinker-trainer: ${url} ${typeof status === 'number' ? `answers ${status}` : `failed: ${status}`}`),
    );
  }
  return findings;
}
