"""What programs with the tinker SDK do, in steps. Each prints JSON lines, which the tests read."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import tinker
from tinker import types
from tinker.lib.api_future_impl import _APIFuture
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType


def say(step: str, **fields: Any) -> None:
    print(json.dumps({"step": step, **fields}), flush=True)


def prompt_of(number: int, length: int = 24) -> list[int]:
    """Ids of words of the simulated model."""
    return [300 + (31 * number + 7 * i) % 400 for i in range(length)]


def sampled(sequence: Any) -> dict[str, Any]:
    logprobs = [float(value) for value in sequence.logprobs]
    return {"tokens": list(sequence.tokens), "logprobs": logprobs, "stop_reason": str(sequence.stop_reason)}


def sampling_client(service: Any, **source: Any) -> Any:
    made = service.create_sampling_client(**source)
    return made.result() if hasattr(made, "result") else made


def capabilities(service: Any, _: Any) -> None:
    say("capabilities", models=[model.model_name for model in service.get_server_capabilities().supported_models])


def samples(service: Any, args: Any) -> None:
    """Concurrent calls, each with several samples."""
    client = sampling_client(service, base_model=args.model)
    say("client", session=client._sampling_session_id)
    params = types.SamplingParams(max_tokens=12, temperature=1.0, seed=7)
    calls = [
        client.sample(prompt=types.ModelInput.from_ints(prompt_of(i)), num_samples=4, sampling_params=params)
        for i in range(8)
    ]
    for i, call in enumerate(calls):
        say("sample", index=i, prompt=prompt_of(i), sequences=[sampled(each) for each in call.result().sequences])


def scores(service: Any, args: Any) -> None:
    client = sampling_client(service, base_model=args.model)
    prompt = types.ModelInput.from_ints(prompt_of(1))
    say("scores", logprobs=client.compute_logprobs(prompt).result())
    params = types.SamplingParams(max_tokens=1)
    result = client.sample(
        prompt=prompt, num_samples=1, sampling_params=params, include_prompt_logprobs=True, topk_prompt_logprobs=3
    ).result()
    say("topk", logprobs=result.prompt_logprobs, rows=result.topk_prompt_logprobs)


def ends(service: Any, args: Any) -> None:
    """What ends a sample: a token, a text, the limit, and nothing else with an empty list."""
    client = sampling_client(service, base_model=args.model)
    prompt = types.ModelInput.from_ints(prompt_of(2))

    def sample(**params: Any) -> dict[str, Any]:
        sampling_params = types.SamplingParams(temperature=0.0, **params)
        future = client.sample(prompt=prompt, num_samples=1, sampling_params=sampling_params)
        return sampled(future.result().sequences[0])

    whole = sample(max_tokens=16, stop=[])
    say("end", by="limit", **whole)
    say("end", by="token", **sample(max_tokens=16, stop=[whole["tokens"][5]]))
    say("end", by="again", **sample(max_tokens=16, stop=[]))


async def asample(
    holder: Any, session: str | None, seq_id: int | None, tokens: list[int], model: str | None = None
) -> Any:
    """One turn by the low-level call, which takes the caller's seq_id."""
    request = types.SampleRequest(
        sampling_session_id=session,
        seq_id=seq_id,
        base_model=model,
        num_samples=1,
        prompt=types.ModelInput.from_ints(tokens),
        sampling_params=types.SamplingParams(max_tokens=8, temperature=0.7, seed=1),
    )
    say("dispatch", key=None if session is None else f"{session}:{seq_id}")
    start = time.time()
    with holder.aclient(ClientConnectionPoolType.SAMPLE) as client:
        promise = await client.sampling.asample(request=request, max_retries=0)
    return await _APIFuture(types.SampleResponse, holder, promise, request_start_time=start, request_type="Sample")


def trajectories(service: Any, args: Any) -> None:
    """Every turn of a trajectory has its seq_id, and a prompt that goes on from the turn before."""
    client = sampling_client(service, base_model=args.model)
    session, holder = client._sampling_session_id, client.holder

    async def trajectory(index: int) -> None:
        tokens = prompt_of(index)
        for turn in range(args.turns):
            result = await asample(holder, session, args.first_seq_id + index, tokens)
            say("turn", key=f"{session}:{args.first_seq_id + index}", prompt=tokens, turn=turn)
            tokens = [*tokens, *result.sequences[0].tokens, *prompt_of(100 * index + turn, 8)]

    running = [holder.run_coroutine_threadsafe(trajectory(i)).future() for i in range(args.trajectories)]
    for each in running:
        each.result()


def direct(service: Any, args: Any) -> None:
    """A model without a sampling session: there is no routing key."""
    holder = sampling_client(service, base_model=args.model).holder

    async def all_of_them() -> None:
        for i in range(4):
            result = await asample(holder, None, None, prompt_of(50 + i), args.model)
            say("direct", prompt=prompt_of(50 + i), **sampled(result.sequences[0]))

    holder.run_coroutine_threadsafe(all_of_them()).future().result()


def rollouts(service: Any, args: Any) -> None:
    """A run that takes a while: multi-turn, by the SDK's own call."""
    client = sampling_client(service, base_model=args.model)
    prompts = {i: prompt_of(i) for i in range(args.trajectories)}
    params = types.SamplingParams(max_tokens=16, temperature=1.0, seed=3)
    for turn in range(args.turns):
        calls = {
            i: client.sample(prompt=types.ModelInput.from_ints(prompt), num_samples=2, sampling_params=params)
            for i, prompt in prompts.items()
        }
        for i, call in calls.items():
            sequences = [sampled(each) for each in call.result().sequences]
            say("rollout", index=i, turn=turn, prompt=prompts[i], sequences=sequences)
            prompts[i] = [*prompts[i], *sequences[0]["tokens"]]


def training(service: Any, args: Any) -> None:
    """Trains, saves, and samples from what was saved."""
    trainer = service.create_lora_training_client(base_model=args.model, rank=8)
    trainer = trainer.result() if hasattr(trainer, "result") else trainer
    prompt = types.ModelInput.from_ints(prompt_of(5))
    params = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[])
    data = [
        types.Datum(
            model_input=prompt,
            loss_fn_inputs={"target_tokens": prompt_of(6), "weights": [1.0] * 24},
        )
    ]

    def sample(client: Any) -> list[int]:
        result = client.sample(prompt=prompt, num_samples=1, sampling_params=params).result()
        return list(result.sequences[0].tokens)

    say("base", tokens=sample(sampling_client(service, base_model=args.model)))
    for step in range(2):
        say("loss", metrics=trainer.forward_backward(data, "cross_entropy").result().metrics)
        trainer.optim_step(types.AdamParams(learning_rate=1e-4)).result()
        client = trainer.save_weights_and_get_sampling_client(name=f"step-{step}")
        client = client.result() if hasattr(client, "result") else client
        say("saved", session=client._sampling_session_id, tokens=sample(client))
    path = trainer.save_weights_for_sampler(name="last").result().path
    say("path", path=path, tokens=sample(sampling_client(service, model_path=path)))


def main() -> None:
    steps = {
        each.__name__: each for each in (capabilities, samples, scores, ends, trajectories, direct, rollouts, training)
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", nargs="+", choices=steps)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", default="sim")
    parser.add_argument("--trajectories", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--first-seq-id", type=int, default=0)
    args = parser.parse_args()
    service = tinker.ServiceClient(base_url=args.base_url, api_key="tml-dummy")
    for step in args.steps:
        steps[step](service, args)
    say("version", version=tinker.__version__)


if __name__ == "__main__":
    main()
