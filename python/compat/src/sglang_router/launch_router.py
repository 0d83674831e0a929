"""`python -m sglang_router.launch_router`, and what frameworks import from it."""

from __future__ import annotations

import argparse
from typing import NoReturn

from turnout._command import become
from turnout_compat.launch import BlockingRouter

from .router_args import RouterArgs


def launch_router(args: argparse.Namespace | RouterArgs) -> None:
    """Runs a router until it is stopped. Raises `turnout.RouterError`, with the words of the router, when it does not start."""
    BlockingRouter("launch_router", args if isinstance(args, RouterArgs) else RouterArgs.from_cli_args(args)).start()


def main() -> NoReturn:
    become("launch_router")


if __name__ == "__main__":
    main()

__all__ = ["RouterArgs", "launch_router", "main"]
