"""Multi-turn trajectories whose turns all go to one engine.

`SamplingClient.sample()` gives each call a seq_id of its own, and so a routing key of its own. Here each trajectory keeps its index as
seq_id, by the SDK's low-level call: the routing key `<sampling_session_id>:<seq_id>` is the same in each turn, the router sends each turn to
the same engine, and the engine finds the turns before in its prefix cache.

    TINKER_API_KEY=tml-dummy python sample_session_routing_demo.py --num-trajectories 4 --turns 3
"""

from __future__ import annotations

import argparse
import time

import tinker
from tinker import types
from tinker.lib.api_future_impl import _APIFuture
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType


class Sampler:
    """A sampling session, sampled with seq_ids of the caller's choice."""

    def __init__(self, client: tinker.SamplingClient) -> None:
        self.session_id: str = client._sampling_session_id
        self.holder = client.holder

    async def sample(self, seq_id: int, prompt: list[int], params: types.SamplingParams) -> types.SampleResponse:
        request = types.SampleRequest(
            sampling_session_id=self.session_id,
            seq_id=seq_id,
            num_samples=1,
            prompt=types.ModelInput.from_ints(prompt),
            sampling_params=params,
        )
        print(f"client: dispatch routing-key={self.session_id}:{seq_id}", flush=True)
        start = time.time()
        with self.holder.aclient(ClientConnectionPoolType.SAMPLE) as http:
            promise = await http.sampling.asample(request=request, max_retries=0)
        return await _APIFuture(
            types.SampleResponse, self.holder, promise, request_start_time=start, request_type="Sample"
        )


async def trajectory(sampler: Sampler, tokenizer, index: int, turns: int, seed: int) -> list[str]:
    messages = [{"role": "user", "content": f"Tell a story about the number {index} in one sentence."}]
    for turn in range(turns):
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        params = types.SamplingParams(max_tokens=32, temperature=0.7, seed=seed + 100 * index + turn)
        result = await sampler.sample(index, list(prompt), params)
        text = tokenizer.decode(result.sequences[0].tokens, skip_special_tokens=True)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    return [message["content"] for message in messages if message["role"] == "assistant"]


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--base-url", default="http://localhost:8000")
    parser.add_argument("--model", help="default: the first model of the server")
    parser.add_argument("--num-trajectories", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    service = tinker.ServiceClient(base_url=args.base_url)
    model = args.model or service.get_server_capabilities().supported_models[0].model_name
    client = service.create_sampling_client(base_model=model)
    client = client.result() if hasattr(client, "result") else client
    sampler, tokenizer = Sampler(client), client.get_tokenizer()

    running = [
        client.holder.run_coroutine_threadsafe(trajectory(sampler, tokenizer, i, args.turns, args.seed)).future()
        for i in range(args.num_trajectories)
    ]
    for i, each in enumerate(running):
        texts = each.result()
        print(f"client: trajectory {i}: {len(texts)} turns, the first: {texts[0][:60]!r}", flush=True)


if __name__ == "__main__":
    main()
