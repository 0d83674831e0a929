import { dirname } from 'node:path';
import * as z from 'zod';
import type { Worker } from '../fleet/worker.ts';
import type { PluginDefinition } from '../plugins/definition.ts';
import { type LayerFacts, loadLayers, readLayerList } from './layers.ts';
import { RolloutRequests } from './rollout-requests.ts';

const NAME = 'rollout-fields';

const count = z.int().min(1);

const options = z.strictObject({
  modelConfig: z
    .string()
    .min(1)
    .optional()
    .describe(
      "The model's config.json or its folder. Default: beside --tokenizer-path, else the path that engines report as the model's root.",
    ),
  moeLayers: z
    .string()
    .refine((text) => readLayerList(text) !== undefined, 'is a list of layers (3-60, or 0,2,4), or all')
    .optional()
    .describe('The layers with experts, in place of what config.json says: 3-60, or all.'),
  layers: count.optional().describe('Hidden layers of the model, in place of what config.json says.'),
  experts: count.optional().describe('Experts per layer, in place of what config.json says.'),
  expertsPerToken: count
    .optional()
    .describe('Experts that a token uses in a layer, in place of what config.json says.'),
  engine: z.enum(['auto', 'sglang', 'vllm']).default('auto').describe('What the workers are; auto: as they report.'),
  keepAliveSecs: z
    .number()
    .min(0)
    .max(3600)
    .default(15)
    .describe(
      'A stream that the engine returns as a whole gets a comment this often until then, in seconds. 0: none, and errors keep their status.',
    ),
  logprobs: z
    .enum(['raw', 'processed', 'unknown'])
    .default('unknown')
    .describe(
      'Which logprobs the engines return: raw (of the model; vLLM --logprobs-mode raw_logprobs) or processed (after temperature, top_p and top_k). The other kind is null unless both are equal.',
    ),
});

type Options = z.output<typeof options>;

/** The request and response fields of rollout inference: see docs/guides/rollout-fields.md. */
export const rolloutFields: PluginDefinition<Options> = {
  name: NAME,
  options,
  create(own, { config, fleet }) {
    const loaded = new Map<string, Promise<LayerFacts | null>>();
    const load = async (path: string): Promise<LayerFacts | null> => {
      const loading = loaded.get(path) ?? loadLayers(path);
      loaded.set(path, loading);
      const facts = await loading;
      // The file may come later, as that of a model that is still being downloaded.
      if (facts === null) loaded.delete(path);
      return facts;
    };
    const { tokenizerPath } = config;
    const layersOf = async (worker: Worker, model: string): Promise<LayerFacts | null> => {
      const paths =
        own.modelConfig !== undefined
          ? [own.modelConfig]
          : [
              ...(tokenizerPath === undefined ? [] : [tokenizerPath, dirname(tokenizerPath)]),
              ...rootsOf(worker, model),
            ];
      for (const path of paths) {
        const facts = await load(path);
        if (facts !== null) return withOwn(facts, own);
      }
      return own.moeLayers === undefined ? null : withOwn(UNKNOWN, own);
    };
    // Deployments of one fleet share its engines, so what they ran at the start.
    const baseIdentity = config.deployments[0]?.['base-identity'] ?? config.swapBaseIdentity;
    return new RolloutRequests({ ...own, baseIdentity }, fleet, layersOf);
  },
};

const UNKNOWN: LayerFacts = { layers: null, moeLayers: null, experts: null, perToken: null };

/** What the options say counts. */
function withOwn(facts: LayerFacts, { moeLayers, layers, experts, expertsPerToken }: Options): LayerFacts {
  return {
    layers: layers ?? facts.layers,
    moeLayers: moeLayers === undefined ? facts.moeLayers : readLayerList(moeLayers)!,
    experts: experts ?? facts.experts,
    perToken: expertsPerToken ?? facts.perToken,
  };
}

/** Where engines read their models from: it may be a folder that the router can read, too. */
function rootsOf({ models }: Worker, model: string): string[] {
  const all = [...(models ?? [])].filter(([name]) => model === '' || name === model);
  return all.flatMap(([, json]) => {
    const { root } = JSON.parse(json) as { root?: unknown };
    return typeof root === 'string' && root.startsWith('/') ? [root] : [];
  });
}
