"""turnout: the router between RL training code and a fleet of LLM inference engines.

>>> from turnout import Router
>>> with Router(policy="consistent_hash", worker_urls=["http://worker1:8000"]) as router:
...     print(router.url)

`Router` runs a router and steers it; `Client` and `AsyncClient` steer one that runs elsewhere.
"""

from importlib.metadata import version

from ._options import RouterOptions
from ._process import RouterError
from .client import AsyncClient, Client, ControlError, Report, Result, Worker
from .router import Router

__version__ = version("turnout")
__all__ = [
    "AsyncClient",
    "Client",
    "ControlError",
    "Report",
    "Result",
    "Router",
    "RouterError",
    "RouterOptions",
    "Worker",
]
