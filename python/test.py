"""`npm test -- suite:python`: builds the wheels, installs them into a new environment without Node, and tests them there.

Arguments are those of `python -m unittest`, for example `-k seed`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PYTHON = Path(__file__).resolve().parent


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="turnout-python-") as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        python = str(home / "venv/bin/python")
        # The commands on the PATH: the environment's, and the shell that guards engines with its tools.
        (home / "tools").mkdir()
        for tool in ("sh", "sleep"):
            (home / "tools" / tool).symlink_to(str(shutil.which(tool)))
        bare = {**os.environ, "PATH": f"{home / 'venv/bin'}:{home / 'tools'}"}
        assert shutil.which("node", path=bare["PATH"]) is None

        subprocess.run([python, str(PYTHON / "build.py")], check=True)
        # What is not imported here needs no bytecode.
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        tools = ["mypy==2.4.1", "ruff==0.17.5", "numpy==2.2.6", "pyarrow==23.0.1"]
        subprocess.run([*pip, *tools, *map(str, (PYTHON / "dist").glob("*.whl"))], check=True, env=bare)
        ruff = [python, "-m", "ruff"]
        for words in (["check", "--quiet"], ["format", "--quiet", "--check"]):
            files = [".", "../examples/feed", "../examples/grpo", "../examples/ray"]
            subprocess.run(
                [*ruff, *words, "--no-cache", "--config", "ruff.toml", *files], check=True, cwd=PYTHON, env=bare
            )
        check = [python, "-m", "mypy", "--strict", "--cache-dir", str(home / "mypy")]
        # Checked as installed packages with py.typed.
        packages = [
            word for name in ("turnout", "turnout_compat", "sglang_router", "vllm_router") for word in ("-p", name)
        ]
        subprocess.run([*check, *packages], check=True, cwd=home, env=bare)
        subprocess.run([*check, str(PYTHON / "tests")], check=True, cwd=home, env=bare)
        tests = [python, "-m", "unittest", "discover", "-v", "-t", str(PYTHON), "-s", str(PYTHON / "tests")]
        sys.exit(subprocess.run([*tests, *sys.argv[1:]], cwd=home, env=bare).returncode)


if __name__ == "__main__":
    main()
