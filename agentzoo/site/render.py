"""Pages from templates. Everything printed is escaped and made harmless; only `Markup` is taken as it is."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from agentzoo import __version__
from agentzoo.errors import MOST_SAID, shown
from agentzoo.site.markup import lines, short, spans
from agentzoo.text import amount

NAV = (
    ("index.html", "Agents"),
    ("leaderboard.html", "Leaderboard"),
    ("datasets.html", "Datasets"),
)
STYLE, SCRIPT = "site.css", "site.js"


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
    environment.filters.update(lines=lines, spans=spans, short=short, amount=_amount)
    return environment


def _harmless(value: Any) -> Any:
    return value if isinstance(value, Markup) or not isinstance(value, str) else shown(value, MOST_SAID)


def _amount(value: float) -> str:
    return amount(value, ",")


def page(template: str, title: str, here: str, root: str = "", **facts: Any) -> str:
    """A whole page.

    Args:
        here: the entry of the navigation that this page is, or belongs to.
        root: the way from the page to the folder of the site, `../` from within `agents/`.
    """
    shared = {"title": title, "here": here, "root": root, "nav": NAV, "version": __version__, "docs": False}
    return _environment().get_template(template).render({**shared, **facts})


def single_page(template: str, title: str, **facts: Any) -> str:
    """A page that needs no other file: the style is inside, there is no script and no navigation."""
    return page(template, title, "", nav=(), style=Markup(static(STYLE).replace("</", "<\\/")), **facts)
