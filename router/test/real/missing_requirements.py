"""Prints what an environment still lacks to run an engine, one requirement a line.

usage: python missing_requirements.py LEFT_OUT_REGEX ENGINE==VERSION [PIN ...]
A pin goes before the engine's own wish for the same package; requirements that match the expression are left out.
Exit status 3: the engine itself is not installed. Nothing but pip's own vendored code is needed.
"""

import re
import sys
from importlib import metadata

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


def is_installed(wanted: Requirement) -> bool:
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.specifier.contains(version, prereleases=True)


def main(left_out: str, engine: str, *pins: str) -> int:
    pinned = {canonicalize_name(Requirement(pin).name): Requirement(pin) for pin in pins}
    if not is_installed(Requirement(engine)):
        return 3
    wanted = list(pinned.values())
    for line in metadata.requires(Requirement(engine).name) or []:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name in pinned or re.search(left_out, name):
            continue
        requirement.marker = None
        wanted.append(requirement)
    for requirement in wanted:
        if not is_installed(requirement):
            print(requirement)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
