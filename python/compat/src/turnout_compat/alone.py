"""Two packages that install the same modules overwrite each other's files: then neither is to be trusted."""

from importlib.metadata import PackageNotFoundError, version


def refuse_beside(package: str) -> None:
    """Raises `ImportError` when the package whose modules these are named after is installed too."""
    try:
        theirs = version(package)
    except PackageNotFoundError:
        return
    module = package.replace("-", "_")
    raise ImportError(
        f"turnout-compat and {package} {theirs} are both installed, and both have the module {module}. "
        f"Keep one: `pip uninstall {package} turnout-compat`, then install the one that you want."
    )
