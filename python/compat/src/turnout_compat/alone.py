"""Packages that install the same modules overwrite each other's files, so neither works reliably."""

from importlib.metadata import PackageNotFoundError, version


def refuse_beside(package: str) -> None:
    """Raises `ImportError` if the original package is installed too."""
    try:
        theirs = version(package)
    except PackageNotFoundError:
        return
    module = package.replace("-", "_")
    raise ImportError(
        f"turnout-compat and {package} {theirs} are both installed, and both have the module {module}. "
        f"Keep one: `pip uninstall {package} turnout-compat`, then install the one that you want."
    )
