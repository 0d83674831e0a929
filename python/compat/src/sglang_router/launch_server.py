"""`python -m sglang_router.launch_server`: engines and a router. Frameworks import the parts of `launch_router` from here too."""

from __future__ import annotations

from typing import NoReturn

from turnout._command import become

from .launch_router import RouterArgs, launch_router


def main() -> NoReturn:
    become("launch_server")


if __name__ == "__main__":
    main()

__all__ = ["RouterArgs", "launch_router", "main"]
