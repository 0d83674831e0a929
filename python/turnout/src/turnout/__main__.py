"""`turnout` and `python -m turnout`: the router's own command line."""

from typing import NoReturn

from ._command import become


def main() -> NoReturn:
    become()


if __name__ == "__main__":
    main()
