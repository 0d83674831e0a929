"""Generated from `router/src/config/alias/`."""

__version__ = "0.1.17+turnout"
