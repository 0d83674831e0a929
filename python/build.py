"""Builds the wheels `turnout` and `turnout-compat` into python/dist. `npm run build` comes first.

The first carries the router as `npm run build` leaves it: the packages that it needs are in its files already.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parent
ROOT = PYTHON.parent
STAGE = PYTHON / "turnout" / "build" / "router"
DIST = PYTHON / "dist"

# The files that run and their licences; without type declarations.
CARRIED = ("*.js", "*.css", "*.html", "package.json", "THIRD_PARTY_LICENSES", "sbom.cdx.json")


def stage() -> None:
    if not (ROOT / "router/dist/cli/main.js").exists():
        sys.exit("The router is not built: run npm run build first.")
    shutil.rmtree(STAGE, ignore_errors=True)
    for folder in ("bin", "dist"):
        for pattern in CARRIED:
            for file in (ROOT / "router" / folder).rglob(pattern):
                target = STAGE / file.relative_to(ROOT / "router")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    shutil.copyfile(ROOT / "router/package.json", STAGE / "package.json")
    shutil.copyfile(ROOT / "LICENSE", STAGE / "LICENSE")


def main() -> None:
    stage()
    shutil.rmtree(DIST, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(DIST)]
    subprocess.run([*pip, str(PYTHON / "turnout"), str(PYTHON / "compat")], check=True)
    for wheel in sorted(DIST.glob("*.whl")):
        print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
