"""`RouterArgs`: a router's command line as a dataclass, as in sglang-router and vllm-router."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar, get_args, get_type_hints

from turnout._command import list_text_of, text_of

Self = TypeVar("Self", bound="PeerArgs")

# Flags that never get the prefix "router-".
_NEVER_PREFIXED = ("host", "port", "worker-urls")


@dataclass
class PeerArgs:
    """The metadata of every field has its `flag`."""

    @classmethod
    def add_cli_args(
        cls, parser: argparse.ArgumentParser, use_router_prefix: bool = False, exclude_host_port: bool = False
    ) -> None:
        """Adds the flags to a parser: with the prefix as `--router-policy`, without `--host` and `--port` if the parser has them."""
        for field in fields(cls):
            flag = str(field.metadata["flag"])
            if exclude_host_port and flag in ("host", "port"):
                continue
            help_text = str(field.metadata["help"]).replace("%", "%%")
            parser.add_argument(f"--{_spelled(flag, use_router_prefix)}", help=help_text, **_takes(cls, field))

    @classmethod
    def from_cli_args(cls: type[Self], args: argparse.Namespace, use_router_prefix: bool = False) -> Self:
        """Reads the parsed flags of `add_cli_args`. A missing value, or None, means the default."""
        given = vars(args)
        values: dict[str, Any] = {}
        for field in fields(cls):
            flag = str(field.metadata["flag"])
            # A flag with the prefix decides even if its value is None: the flag without the prefix may be the engine's.
            found = None
            for prefixed in (use_router_prefix, False):
                names = [_attribute(_spelled(name, prefixed)) for name in (flag, field.name)]
                values_given = [given[name] for name in names if name in given]
                if values_given:
                    found = next((value for value in values_given if value is not None), None)
                    break
            if found is not None:
                values[field.name] = _read(field, found)
        return cls(**values)

    def command_line(self) -> tuple[list[str], dict[str, str]]:
        """The same settings as flags of turnout, and environment variables for secrets."""
        words: list[str] = []
        environment: dict[str, str] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            # turnout's own defaults are left out, so that its environment variables and file can replace them.
            is_understood = value == _default(field) and not field.metadata.get("always", False)
            if value is None or value is False or is_understood:
                continue
            variable = field.metadata.get("env")
            if variable is not None:
                texts = _texts(field, value)
                is_list = field.metadata.get("env_is_list", False)
                environment[str(variable)] = list_text_of(texts) if is_list else texts[0]
                continue
            words += [f"--{field.metadata['flag']}", *_texts(field, value)]
        return words, environment


def _spelled(flag: str, use_router_prefix: bool) -> str:
    return f"router-{flag}" if use_router_prefix and flag not in _NEVER_PREFIXED else flag


def _attribute(flag: str) -> str:
    return flag.replace("-", "_")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _takes(cls: type, field: Field[Any]) -> dict[str, Any]:
    """The arguments of `add_argument` for a flag."""
    default = _default(field)
    if isinstance(default, bool):
        return {"action": "store_true", "default": default}
    if field.name in ("prefill_urls", "decode_urls"):
        return {"nargs": "+", "action": "append", "default": None}
    if isinstance(default, (list, dict)):
        return {"nargs": "*", "default": None}
    hint = get_type_hints(cls)[field.name]
    inner = next((each for each in get_args(hint) if each is not type(None)), hint)
    return {"type": inner, "default": default}


def _read(field: Field[Any], given: Any) -> Any:
    """Converts a parsed value to the field's type; converted values stay."""
    if isinstance(given, Mapping) or not isinstance(_default(field), (list, dict)):
        return given
    if field.name == "prefill_urls":
        return [each if isinstance(each, tuple) else _prefill(each) for each in given]
    if field.name == "decode_urls":
        return [url for each in given for url in ([each] if isinstance(each, str) else each)]
    if field.name == "control_plane_api_keys":
        return [each if isinstance(each, tuple) else _control_key(each) for each in given]
    if isinstance(_default(field), dict):
        pairs = (each.partition("=") for text in given for each in text.split())
        return {name: value for name, equals, value in pairs if equals}
    return list(given)


def _prefill(given: Sequence[str]) -> tuple[str, int | None]:
    """`URL [PORT|none]`"""
    url, *port = given
    if len(port) > 1 or (port and port[0].lower() != "none" and not port[0].isdigit()):
        raise ValueError(f"--prefill {' '.join(given)}: after the URL a bootstrap port, or none")
    return url, int(port[0]) if port and port[0].isdigit() else None


def _control_key(text: str) -> tuple[str, str, str, str]:
    """`id:name:role:key`, stored as id, name, key, role."""
    parts = text.split(":", 3)
    if len(parts) != 4:
        raise ValueError("--control-plane-api-keys: give each as id:name:role:key")
    return parts[0], parts[1], parts[3], parts[2]


def _texts(field: Field[Any], value: Any) -> list[str]:
    if value is True:
        return []
    if isinstance(value, Mapping):
        return [f"{name}={each}" for name, each in value.items()]
    if field.name == "prefill_urls":
        return [text for url, port in value for text in (url, "none" if port is None else str(port))]
    if field.name == "control_plane_api_keys":
        if any(role != "admin" for _, _, _, role in value):
            raise ValueError('--control-plane-api-keys: only keys of the role "admin" are known here')
        return [key for _, _, key, _ in value]
    return [text_of(each) for each in value] if isinstance(value, (list, tuple)) else [text_of(value)]
