"""`python -m turnout.launch_router`: the router with the command line of `python -m sglang_router.launch_router`."""

from typing import NoReturn

from ._command import become


def main() -> NoReturn:
    become("launch_router")


if __name__ == "__main__":
    main()
