"""The documentation of the site: READMEs, notebooks and docstrings, whole and with links that lead somewhere."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from agentzoo.evaluation.statistics import interquartile_mean
from agentzoo.site.docs import API, GUIDES, NOTEBOOKS, as_markdown, checkout, relinked

ROOT = Path(__file__).resolve().parents[2]


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


@pytest.mark.slow
def test_every_page_is_there_with_what_it_is_made_of(site: Path) -> None:
    assert {path.stem for path in (site / "docs").glob("*.html")} == {*GUIDES, *NOTEBOOKS, *API}
    for name, file in GUIDES.items():
        (title,) = re.findall(r"\A# (.+)$", (ROOT / file).read_text(), re.MULTILINE)
        assert f"<h1>{title}</h1>" in (site / "docs" / f"{name}.html").read_text()
    agents = words((site / "docs" / "api-agents.html").read_text())
    assert "predict(" in agents
    assert "to bind as set_env does" in agents
    statistics = words((site / "docs" / "api-evaluation.html").read_text())
    assert str(interquartile_mean.__doc__).splitlines()[0] in statistics
    hour = words((site / "docs" / "first-hour.html").read_text())
    assert 'Agent.from_pretrained("zoo/dt-hopper-medium")' in hour
    assert "jupytext" not in hour


@pytest.mark.slow
def test_links_of_a_readme_lead_to_pages_of_the_site(site: Path) -> None:
    text = (site / "docs" / "index.html").read_text()
    assert 'href="models.html"' in text
    assert "README.md" not in re.findall(r'href="([^"]+)"', text)
    assert (site / "docs" / "_images" / "zoo.gif").is_file()


def test_a_link_to_a_card_leads_to_the_page_of_the_agent(tmp_path: Path) -> None:
    text = "[`dt-x`](dt-x/README.md) and [dt-y](dt-y/README.md)"
    said = relinked(text, ROOT / "hub_cards", ROOT, tmp_path, {"dt-x": "../agents/dt-x.html"})
    assert said == '<a href="../agents/dt-x.html">dt-x</a> and dt-y'


def test_a_script_becomes_text_and_code() -> None:
    script = "# ---\n# jupyter: x\n# ---\n# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nprint(1)\n# a comment\n"
    assert as_markdown(script) == "# Title\n\nWords.\n\n```python\nprint(1)\n# a comment\n```\n"


def test_links_out_of_the_checkout_become_text(tmp_path: Path) -> None:
    text = "[a](../../../etc/passwd) ![b](../../etc/passwd) [c](https://e.org) [d](agentzoo/data/README.md#x)"
    said = relinked(text, checkout(), checkout(), tmp_path, {})
    assert said == "a b [c](https://e.org) [d](data.md#x)"
    assert list(tmp_path.iterdir()) == []
