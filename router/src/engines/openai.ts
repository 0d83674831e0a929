import { type Asker, askJson, askText } from './ask.ts';
import type { Engine } from './engine.ts';

/** @returns the first model that /v1/models lists */
export async function servedModel(ask: Asker): Promise<string | null> {
  const models = (await askJson(ask, '/v1/models'))?.['data'];
  const first: unknown = Array.isArray(models) ? models[0] : null;
  if (typeof first !== 'object' || first === null || !('id' in first)) return null;
  return typeof first.id === 'string' ? first.id : null;
}

/** Any other server with the OpenAI API. */
export const openai: Engine = {
  kind: 'openai',
  async read(ask) {
    return {
      kind: 'openai',
      engineVersion: null,
      model: await servedModel(ask),
      weightVersion: null,
      hasPrefixCache: null,
      kvTokens: null,
      returnsRoutedExperts: null,
      dpSize: null,
      hasControlCalls: null,
    };
  },
  readLoads: () => Promise.resolve(null),
  async readSigns(ask) {
    // Only whether it answers at all counts here.
    await Promise.all([askText(ask, '/metrics'), askText(ask, '/v1/models')]);
    return { isPaused: null, mayBePaused: false, figures: null };
  },
  readWeightVersion: () => Promise.resolve(null),
};
