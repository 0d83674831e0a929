"""Renders chat templates with Jinja2 itself, set up as transformers 5.19 does (`_compile_jinja_template`).

Reads lines of JSON, `{"template", "names"}`; `names` is JSON in a text. Writes a line for each: `{"text"}` or `{"error"}`.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: prints what is in it."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_printed"), [], [], body).set_lineno(line)

    def _printed(self, caller: Any) -> str:
        return caller()


def raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = strftime_now


@lru_cache
def compiled(source: str) -> jinja2.Template:
    return environment.from_string(source)


def answer(template: str, names: str) -> dict[str, str]:
    try:
        return {"text": compiled(template).render(**json.loads(names))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


for line in sys.stdin:
    print(json.dumps(answer(**json.loads(line))), flush=True)
