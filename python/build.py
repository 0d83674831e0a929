"""Builds the wheels `turnout` and `turnout-compat` into python/dist. `npm run build:python` builds the router before.

The first carries the router as `npm run build` leaves it and the packages that it can't do without, as they stand in
`node_modules`. Optional ones are left out: they are of use to few, and zeromq is a binary per platform.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parent
ROOT = PYTHON.parent
STAGE = PYTHON / "turnout" / "build" / "router"
DIST = PYTHON / "dist"

# Everything else in packages is for people and compilers.
RUNS = {".js", ".cjs", ".mjs", ".json", ".node", ".wasm"}


def production_packages() -> list[str]:
    """The folders of all packages that the router depends on, from the root, as Node finds them."""
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    found: dict[str, None] = {}
    todo = [("router", name) for name in packages["router"]["dependencies"]]
    while todo:
        place, name = todo.pop()
        folder = next(each for each in lookups(place, name) if each in packages)
        if folder not in found:
            found[folder] = None
            todo += [(folder, each) for each in packages[folder].get("dependencies", {})]
    return sorted(found)


def lookups(place: str, name: str) -> list[str]:
    """Where a package of that name may stand for a module in `place`, the nearest first."""
    parts = place.split("/node_modules/") if place.startswith("node_modules/") else [place]
    nested = ["/node_modules/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return [f"{folder}/node_modules/{name}" for folder in nested] + [f"node_modules/{name}"]


def copy(source: Path, target: Path) -> None:
    """Copies what runs, and licences; packages within packages come by themselves."""
    if not source.is_dir():
        sys.exit(f"{source.relative_to(ROOT)} is missing: npm ci")
    for file in source.rglob("*"):
        inner = file.relative_to(source)
        is_wanted = file.suffix in RUNS or file.name.lower().startswith(("license", "licence", "notice", "copying"))
        if file.is_file() and is_wanted and "node_modules" not in inner.parts:
            (target / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / inner)


def stage() -> None:
    if not (ROOT / "router/dist/cli/main.js").exists():
        sys.exit("The router is not built: npm run build:python does that too.")
    shutil.rmtree(STAGE, ignore_errors=True)
    for folder in ("bin", "dist"):
        copy(ROOT / "router" / folder, STAGE / folder)
    for folder in production_packages():
        copy(ROOT / folder, STAGE / folder.removeprefix("router/"))
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
