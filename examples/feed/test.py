"""`npm test -- suite:feed`: installs real agent-lightning and openai, and slime's packages if SLIME names a checkout of slime, and runs the tests.

    git clone -b v0.3.1 https://github.com/THUDM/slime && SLIME=$PWD/slime npm test -- suite:feed

Arguments are those of `python -m unittest`, for example `-k OpenAi`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"
NUMBERS = ("numpy==2.4.6", "pyarrow==26.0.1")
# By test class: what it needs. slime runs from its source, as its own requirements have GPU packages.
ENVIRONMENTS = {
    "OpenAiTest": ("agentlightning==0.3.0", "openai==2.54.0", *NUMBERS),
    "LightningTest": ("agentlightning==0.3.0", "openai==2.54.0", *NUMBERS),
    "SlimeTest": ("torch==2.15.0", "ray==2.60.0", "transformers==5.23.0", "pillow==13.0.0", "httpx<1", *NUMBERS),
}


def main() -> None:
    subprocess.run([sys.executable, str(PYTHON / "build.py")], check=True)
    wheels = [str(wheel) for wheel in (PYTHON / "dist").glob("turnout-*.whl")]
    isolated = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    failed = False
    with tempfile.TemporaryDirectory(prefix="turnout-feed-") as folder:
        for packages in dict.fromkeys(ENVIRONMENTS.values()):
            tests = [f"test_adapters.{test}" for test, needed in ENVIRONMENTS.items() if needed == packages]
            if "test_adapters.SlimeTest" in tests and "SLIME" not in os.environ:
                print("SlimeTest is skipped: SLIME names no checkout of slime")
                continue
            home = Path(folder) / tests[0]
            venv.create(home, with_pip=True)
            python = str(home / "bin/python")
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *packages, *wheels], check=True)
            run = [python, "-m", "unittest", "-v", *tests, *sys.argv[1:]]
            failed |= subprocess.run(run, cwd=HERE, env=isolated, check=False).returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
