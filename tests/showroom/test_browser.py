"""The site in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from showroom.conftest import AGENTS, HOSTILE, collect_faults, serious_faults

WIDTHS = (390, 1280)
DOCS = ("docs/index.html", "docs/first-hour.html", "docs/data.html", "docs/api-agents.html")
AGENT_PAGES = tuple(f"agents/{name}.html" for name in (*AGENTS, HOSTILE))
PAGES = ("index.html", "leaderboard.html", "datasets.html", *AGENT_PAGES, *DOCS)


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A page that remembers what went wrong in `.faults`: errors, and requests to anything but files."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    collect_faults(page)
    page.on(
        "request", lambda asked: None if asked.url.startswith(("file:", "data:")) else page.faults.append(asked.url)
    )
    yield page
    context.close()


PICTURES = """async () => {
  const films = [...document.querySelectorAll("video source")].map(source => source.parentNode);
  await Promise.all(films.map(film => film.readyState ? 0 : new Promise(done => {
    film.onloadedmetadata = film.onerror = done; setTimeout(done, 4000);
  })));
  return {
    images: [...document.images].map(image => [image.src, image.naturalWidth, image.alt]),
    films: films.map(film => [film.currentSrc, film.videoWidth]),
    posters: await Promise.all([...document.querySelectorAll("video[poster]")].map(film => new Promise(done => {
      const image = new Image(); image.onload = () => done(image.naturalWidth); image.onerror = () => done(0);
      image.src = film.poster;
    }))),
    wide: document.documentElement.scrollWidth - innerWidth,
    title: document.title,
  };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_fits_and_shows_its_pictures(tab: Any, site: Path, name: str) -> None:
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto((site / name).as_uri())
        seen = tab.evaluate(PICTURES)
        assert tab.faults == []
        assert seen["wide"] <= 0, f"{name} is {seen['wide']} px wider than {width}"
        assert [one for one in seen["images"] if one[1] < 100 or not one[2]] == []
        assert [one for one in seen["films"] if one[1] < 100] == []
        assert all(seen["posters"])
        assert "owned" not in seen["title"]
        shot = Image.open(io.BytesIO(tab.screenshot())).convert("L")
        assert len(shot.getcolors(maxcolors=1 << 16) or []) > 60
    if name == "index.html":
        assert len(seen["posters"]) == len(AGENTS)
    if name.removesuffix(".html").removeprefix("agents/") in AGENTS:
        assert len(seen["films"]) == 1


@pytest.mark.slow
def test_every_link_leads_somewhere(tab: Any, site: Path) -> None:
    for path in (site / name for name in PAGES):
        tab.goto(path.as_uri())
        links = tab.evaluate("[...document.querySelectorAll('a[href]')].map(link => link.href)")
        assert len(links) > 4
        for link in {link.partition("?")[0] for link in links if link.startswith("file:")}:
            target, _, anchor = link.removeprefix("file://").partition("#")
            assert Path(target).is_file(), f"{path.name}: {link}"
            assert not anchor or f'id="{anchor}"' in Path(target).read_text(), f"{path.name}: {link}"


def shown(tab: Any, where: str = "#grid .agent") -> list[str]:
    found = tab.eval_on_selector_all(where, "all => all.filter(one => one.offsetParent).map(one => one.dataset.id)")
    return list(found)


@pytest.mark.slow
def test_filters_search_and_sorting_show_the_right_agents_and_stay_in_the_address(tab: Any, site: Path) -> None:
    index = (site / "index.html").as_uri()
    tab.goto(index)
    assert sorted(shown(tab)) == sorted((*AGENTS, HOSTILE))
    tab.select_option("select[name=env]", "Hopper-v5")
    assert shown(tab) == ["dm-hopper-medium", "dt-hopper-medium"]
    assert tab.url.endswith("?env=Hopper-v5")
    tab.fill("input[name=q]", "mamba")
    assert shown(tab) == ["dm-hopper-medium"]
    assert "1 of 5" in tab.inner_text(".count")
    tab.fill("input[name=q]", "nothing like it")
    assert shown(tab) == []
    assert tab.is_visible(".nothing")
    tab.click(".nothing button")
    assert len(shown(tab)) == 5
    assert tab.url == index

    tab.goto(f"{index}?env=Hopper-v5&sort=score&dir=asc")  # as somebody else would open the link
    assert shown(tab) == ["dt-hopper-medium", "dm-hopper-medium"]  # 94.3, 95.6
    tab.check("input[value=table]", force=True)
    assert shown(tab, "#table tbody tr") == ["dt-hopper-medium", "dm-hopper-medium"]
    assert shown(tab) == []
    tab.click("#table th[data-sort=score] button")
    assert shown(tab, "#table tbody tr") == ["dm-hopper-medium", "dt-hopper-medium"]
    assert tab.get_attribute("#table th[data-sort=score]", "aria-sort") == "descending"
    with tab.expect_navigation():  # until the page's script has run
        tab.locator("#table tbody tr:visible a").first.click()
    assert "agents/dm-hopper-medium.html?env=Hopper-v5" in tab.url
    with tab.expect_navigation():
        tab.click(".crumbs .back")
    assert shown(tab, "#table tbody tr") == ["dm-hopper-medium", "dt-hopper-medium"]
    assert tab.faults == []


@pytest.mark.slow
def test_a_plot_zooms_and_the_theme_stays(tab: Any, site: Path) -> None:
    tab.goto((site / "agents" / "dm-hopper-medium.html").as_uri())
    before = tab.inner_text(".zoomable .x-ticks")
    tab.click(".zooms button:nth-child(2)")
    assert tab.inner_text(".zoomable .x-ticks") != before
    assert tab.get_attribute(".zoomable svg", "viewBox").split()[0] == "500"
    area = tab.locator(".zoomable .area").first
    box = area.bounding_box()
    tab.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 40, steps=3)
    tab.mouse.up()
    left, _, width, _ = map(float, tab.get_attribute(".zoomable svg", "viewBox").split())
    assert (left, width) == pytest.approx((625, 250), abs=5)
    tab.click(".zooms button:nth-child(1)")
    assert tab.inner_text(".zoomable .x-ticks") == before
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper)
    tab.click(".theme")
    dark = tab.evaluate(paper)
    assert light != dark
    tab.reload()
    assert tab.evaluate(paper) == dark


@pytest.mark.slow
def test_a_film_plays_when_its_card_is_pointed_at_or_focused(chromium: Any, site: Path) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    card = page.locator(".agent[data-id=dm-hopper-medium]")
    assert card.locator("video").evaluate("film => film.currentSrc") == ""  # nothing is loaded before
    card.hover()
    page.wait_for_function("document.querySelector('[data-id=dm-hopper-medium] video').currentTime > 0.1")
    page.mouse.move(1, 1)
    assert card.locator("video").evaluate("film => film.paused")
    page.locator(".agent[data-id=unimask-doorkey] h2 a").focus()
    page.wait_for_function("!document.querySelector('[data-id=unimask-doorkey] video').paused")
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(tab: Any, site: Path, axe: str, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    for name in PAGES if scheme == "light" else PAGES[:4]:
        tab.goto((site / name).as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        serious = serious_faults(tab, axe)
        assert serious == [], f"{name} in {scheme}"
