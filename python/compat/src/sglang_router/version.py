"""Generated from `router/src/config/alias/`."""

__version__ = "0.3.2+turnout"
