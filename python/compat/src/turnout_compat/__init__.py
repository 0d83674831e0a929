"""What `sglang_router` and `vllm_router` of this package share."""
