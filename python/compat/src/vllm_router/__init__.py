"""turnout under the name of vllm-router."""

from turnout_compat.alone import refuse_beside

from .router import Router
from .version import __version__

refuse_beside("vllm-router")

__all__ = ["Router", "__version__"]
