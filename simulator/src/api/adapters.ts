/** LoRA adapters, loaded at run time: names for other weights. */

import type { HttpCall } from './http-call.ts';
import { Problem, SchemaProblem } from './read-request.ts';
import { refuse } from './refusal.ts';
import type { Routes } from './server.ts';

/** vLLM has these endpoints only with VLLM_ALLOW_RUNTIME_LORA_UPDATING. */
export const vllmAdapterRoutes: Routes = {
  'POST /v1/load_lora_adapter'(call) {
    const { lora_name: name, lora_path: path, load_inplace: inPlace } = call.body;
    if (typeof name !== 'string') return refuse(call, 400, new SchemaProblem('Field required', 'body.lora_name'));
    if (typeof path !== 'string') return refuse(call, 400, new SchemaProblem('Field required', 'body.lora_path'));
    if (call.core.modelNames.has(name) && inPlace !== true) {
      const message = `The lora adapter '${name}' has already been loaded.`;
      return call.json(400, { error: { message, type: 'InvalidUserInput', param: null, code: 400 } });
    }
    call.core.modelNames.set(name, path);
    call.text(200, `Success: LoRA adapter '${name}' added successfully.`);
  },

  'POST /v1/unload_lora_adapter'(call) {
    const name = call.body.lora_name;
    if (typeof name !== 'string') return refuse(call, 400, new SchemaProblem('Field required', 'body.lora_name'));
    if (name === call.core.options.model || !call.core.modelNames.delete(name)) {
      return refuse(call, 404, new Problem(`The lora adapter '${name}' cannot be found.`));
    }
    call.text(200, `Success: LoRA adapter '${name}' removed successfully.`);
  },
};

/** SGLang lists the loaded adapters in each response; failures are 400. */
export const sglangAdapters = {
  load: (call: HttpCall): void => {
    const { lora_name: name, lora_path: path } = call.body;
    if (typeof name !== 'string' || typeof path !== 'string') {
      return refuse(call, 400, new SchemaProblem('Field required', 'body.lora_name'));
    }
    const { modelNames } = call.core;
    const isLoaded = modelNames.has(name);
    if (call.core.options.loraLoading && !isLoaded) modelNames.set(name, path);
    sayAdapters(call, isLoaded ? `LoRA adapter with name ${name} already loaded.` : '');
  },

  /** Waits for the requests that use the adapter; others that name it are refused from now on. */
  unload: async (call: HttpCall): Promise<void> => {
    const { lora_name: name } = call.body;
    const { modelNames, options } = call.core;
    const isKnown = typeof name === 'string' && name !== options.model && modelNames.delete(name);
    if (isKnown) await call.core.whenUnused(name);
    sayAdapters(call, isKnown ? '' : `LoRA adapter with name ${String(name)} does not exist.`);
  },
};

function sayAdapters(call: HttpCall, problem: string): void {
  const { modelNames, options } = call.core;
  const message = options.loraLoading ? problem : 'LoRA is not enabled. Please set `--enable-lora` to enable LoRA.';
  const adapters = [...modelNames].filter(([name]) => name !== options.model);
  call.json(message === '' ? 200 : 400, {
    rid: null,
    http_worker_ipc: null,
    success: message === '',
    error_message: message,
    loaded_adapters: options.loraLoading ? Object.fromEntries(adapters) : null,
  });
}
