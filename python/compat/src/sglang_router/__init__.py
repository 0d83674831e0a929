"""turnout under the name of sglang-router."""

from turnout_compat.alone import refuse_beside

from .version import __version__

refuse_beside("sglang-router")

__all__ = ["__version__"]
