"""Common code of `sglang_router` and `vllm_router`."""
