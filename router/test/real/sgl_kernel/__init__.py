"""Stands in for SGLang's CPU kernel package, which no public registry has.

A plain run on the CPU calls one kernel of it, written here in plain torch; scheduler, cache and HTTP stay SGLang's own.
Put the folder above this one on PYTHONPATH. Also makes the few CUDA calls harmless that SGLang does not guard on a CPU.
"""

import torch


def assign_req_to_token_pool_cpu(request_slots, request_to_token, starts, ends, cache_places, *_):
    taken = 0
    for slot, start, end in zip(request_slots.tolist(), starts.tolist(), ends.tolist()):
        places = cache_places[taken : taken + end - start]
        request_to_token[slot, start:end] = places.to(request_to_token.dtype)
        taken += end - start


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)  # import machinery probes for these

    def refuse(*_, **__):
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in on the CPU")

    return refuse


if not torch.cuda.is_available():

    class _Success(int):
        value = 0

    class _Cudart:
        """--enable-return-routed-experts registers its host buffer through this library."""

        def __getattr__(self, _):
            return lambda *_, **__: _Success(0)

    torch.cuda.cudart = _Cudart
    _torch_empty = torch.empty

    def _empty_in_plain_memory(*sizes, pin_memory=False, **options):
        """A prefill engine of a pair wants the places of the KV that it sends in memory pinned for a GPU."""
        return _torch_empty(*sizes, **options)

    class _Event:
        """A prefill engine records one after each copy of those. On a CPU a copy is done when it returns."""

        def __init__(self, *_, **__):
            pass

        def __getattr__(self, _):
            return lambda *_, **__: True

    torch.empty = _empty_in_plain_memory
    torch.cuda.Event = _Event
    torch.cuda.current_stream = lambda *_, **__: _Event()
