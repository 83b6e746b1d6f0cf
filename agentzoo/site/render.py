"""Pages from templates. Every printed text is escaped and made printable; only `Markup` is used as it is."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from agentzoo import __version__
from agentzoo.errors import MAX_MESSAGE, printable
from agentzoo.site.markup import breakable, lines, short, spans
from agentzoo.text import amount, counted

NAV = (
    ("index.html", "Agents"),
    ("leaderboard.html", "Leaderboard"),
    ("datasets.html", "Datasets"),
)
STYLE, SCRIPT = "site.css", "site.js"


class Parts(NamedTuple):
    """The optional pages of a site, for its navigation."""

    docs: bool = False
    live: bool = False


NO_PARTS = Parts()


def static(name: str) -> str:
    """A file of `static/`, as text."""
    return (resources.files("agentzoo.site") / "static" / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agentzoo.site", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters.update(
        lines=lines, spans=spans, short=short, amount=_amount, breakable=breakable, counted=counted
    )
    return environment


def _harmless(value: Any) -> Any:
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value, MAX_MESSAGE)


def _amount(value: float) -> str:
    return amount(value, ",")


def page(template: str, title: str, here: str, root: str = "", **facts: Any) -> str:
    """A whole page.

    Args:
        here: the page's entry in the navigation.
        root: the path from the page to the site's folder, `../` inside `agents/`.
    """
    shared = {"title": title, "here": here, "root": root, "nav": NAV, "version": __version__, "parts": NO_PARTS}
    return _environment().get_template(template).render({**shared, **facts})


def single_page(template: str, title: str, **facts: Any) -> str:
    """A page in one file: with its style, without scripts and navigation."""
    return page(template, title, "", nav=(), style=Markup(static(STYLE).replace("</", "<\\/")), **facts)
