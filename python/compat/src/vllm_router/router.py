"""`from vllm_router import Router`"""

from __future__ import annotations

from typing import Any

from turnout_compat.launch import BlockingRouter

from .router_args import RouterArgs


class Router(BlockingRouter):
    """A router of these arguments (those of `RouterArgs`). `start()` blocks until it has ended, as that of vllm-router does."""

    def __init__(self, **options: Any) -> None:
        super().__init__("vllm-router", RouterArgs(**options))

    @staticmethod
    def from_args(args: RouterArgs) -> Router:
        return Router(**vars(args))
