import type { PluginDefinition } from '../../src/plugins/definition.ts';

/** Answers `GET /ask` with what an engine answers to a request of the plugin's own. */
export default {
  name: 'asking',
  create: (_, { dispatch }) => ({
    routes({ forClients }) {
      forClients.get('/ask', async () => {
        const { bytes } = await dispatch({ path: '/generate', body: '{}' });
        return new Response(new Uint8Array(await bytes()));
      });
    },
  }),
} satisfies PluginDefinition;
