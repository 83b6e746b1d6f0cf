"""Markdown as HTML, for cards and READMEs. HTML inside them is shown as text, except the folds of our cards."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markupsafe import Markup

from agentzoo.extras import needed
from agentzoo.site.markup import element, join

_FOLD = re.compile(r"^<details>\n<summary>(.*)</summary>\n(.*?)^</details>$", re.MULTILINE | re.DOTALL)
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TITLE = re.compile(r"\A\s*# .*\n")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
Address = Callable[[str], str | None]  # of a relative link; None leaves its text alone


def body_of(card: str) -> str:
    """The card without its metadata and its title."""
    return _TITLE.sub("", _FRONT.sub("", card))


def section_of(card: str, title: str) -> str:
    """The text below one of a card's headings; empty if there is no such heading."""
    parts = _SECTION.split(body_of(card))
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "").strip()


def as_html(text: str, address: Address, heading: int = 2) -> Markup:
    """Markdown with tables, as HTML of this site.

    Args:
        address: relative link -> its address on the site.
        heading: the level of `##`.
    """
    parts, place = [], 0
    for fold in _FOLD.finditer(text):
        parts.append(_render(text[place : fold.start()], address, heading))
        summary = element("summary", html.unescape(fold[1]))  # it was escaped once, on the card
        parts.append(element("details", summary, _render(fold[2], address, heading)))
        place = fold.end()
    return join([*parts, _render(text[place:], address, heading)])


@cache
def _parser() -> Any:
    parser = needed("markdown_it", "site", "a site")
    return parser.MarkdownIt("commonmark", {"html": False}).enable("table")


def _render(text: str, address: Address, heading: int) -> Markup:
    parser = _parser()
    tokens = parser.parse(text)
    _adapt(tokens, address, heading)
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _adapt(tokens: list[Any], address: Address, heading: int) -> None:
    """Point links to this site, make tables scroll, lower headings."""
    for i, token in enumerate(tokens):
        if token.children:
            _adapt(token.children, address, heading)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(max(int(token.tag[1]) + heading - 2, heading), 6)}"
        elif token.type == "table_open":
            _swap(tokens, i, '<div class="scroll" tabindex="0" role="region" aria-label="table"><table>')
        elif token.type == "table_close":
            _swap(tokens, i, "</table></div>")
        elif token.type == "link_open":
            _readdress(token, "href", address)
        elif token.type == "image":
            _readdress(token, "src", address)
            if not token.attrs.get("src"):
                token.type, token.children = "text", []


def _swap(tokens: list[Any], place: int, markup: str) -> None:
    """Replace a token by our own HTML."""
    tokens[place].type, tokens[place].content = "html_block", markup


def _readdress(token: Any, name: str, address: Address) -> None:
    """Rewrite a relative address. Links to other hosts stay; pictures of other hosts are left out."""
    found = str(token.attrs.get(name, ""))
    parts = urlsplit(found)
    if parts.scheme or parts.netloc:
        if name == "src":
            token.attrs.pop(name, None)
        return
    where = found if found.startswith("#") else address(found)
    if where is None:
        token.attrs.pop(name, None)
    else:
        token.attrs[name] = where
