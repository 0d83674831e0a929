"""`python -m turnout.launch_server`: engines and a router, as `python -m sglang_router.launch_server` starts them."""

from typing import NoReturn

from ._command import become


def main() -> NoReturn:
    become("launch_server")


if __name__ == "__main__":
    main()
