/** What `compute_logprobs` of the SDK asks: log p of each token of `ids` but the first, under these weights. */
export async function promptLogprobs(router: string, modelPath: string, ids: readonly number[]): Promise<number[]> {
  const post = async (path: string, body: object): Promise<Response> =>
    fetch(`${router}/api/v1${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': 'tml-dummy' },
      body: JSON.stringify(body),
    });
  const asked = await post('/asample', {
    model_path: modelPath,
    num_samples: 1,
    prompt: { chunks: [{ type: 'encoded_text', tokens: ids }] },
    sampling_params: { max_tokens: 1, temperature: 1 },
    prompt_logprobs: true,
  });
  if (asked.status !== 200) throw new Error(`asample: ${asked.status} ${await asked.text()}`);
  const { request_id } = (await asked.json()) as { request_id: string };
  for (;;) {
    const reply = await post('/retrieve_future', { request_id });
    if (reply.status === 408) continue;
    const result = (await reply.json()) as { prompt_logprobs?: (number | null)[] };
    if (result.prompt_logprobs === undefined) throw new Error(`retrieve_future: ${JSON.stringify(result)}`);
    return result.prompt_logprobs.slice(1) as number[];
  }
}
