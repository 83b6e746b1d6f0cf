"""`agentzoo site`: what the pages say is what the records say, and nothing that the records hold is more than text."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import ConfigError, StorageError
from agentzoo.evaluation.baselines import Baselines, write_baselines
from agentzoo.evaluation.method_comparison import method_of
from agentzoo.evaluation.results import Baseline, Results
from agentzoo.site.agent_page import commands
from agentzoo.site.build_site import MARK, build_site
from agentzoo.site.cardtext import as_html, section_of
from agentzoo.site.curves import asked_and_achieved, training_curves
from agentzoo.site.dataset_page import best_share
from agentzoo.site.entries import read_zoo, slug_of
from agentzoo.site.index_page import index_page
from agentzoo.site.leaderboard_page import leaderboard_page
from agentzoo.site.markup import breakable, element, short, spans, ticks
from agentzoo.site.media import Media
from agentzoo.site.plot import Axis
from agentzoo.site.replayed_frames import write_frames
from agentzoo.site.standings import as_csv, compare, standings
from showroom.conftest import AGENTS, ATTACK, HOSTILE, ROOT, copy_agent, spoil

MEGABYTE = 1_000_000


def test_every_agent_has_a_page_with_its_numbers(site: Path) -> None:
    for name in AGENTS:
        text = (site / "agents" / f"{name}.html").read_text()
        head = Results.from_json((ROOT / "hub_cards" / name / "results.json").read_text(), name).headline
        assert head.return_in_words() in text  # in the card's tables, of this training seed
        assert head.score_in_words() in text
        assert f"agentzoo finetune {name} " in text
    index = (site / "index.html").read_text()
    assert re.findall(r'<article class="agent" data-id="([^"]+)"', index).count(HOSTILE) == 1
    assert set(AGENTS) <= set(re.findall(r'<article class="agent" data-id="([^"]+)"', index))


def test_a_recipe_marks_what_differs_from_its_defaults(site: Path) -> None:
    text = (site / "agents" / "dm-hopper-medium.html").read_text().replace("<wbr>", "")
    marked = re.findall(r'<tr class="differs"><th scope="row">(\w+)</th>', text)
    assert {"steps", "batch_size", "context", "lr", "schedule", "teacher_period"} <= set(marked)
    assert not {"embed_dim", "rtg_scale", "clip"} & set(marked)  # 128, 1000 and 0.25 are the defaults


class Tags(HTMLParser):
    """Which elements and addresses a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        loaded = ("src", "href", "poster", "data-src") if tag != "a" else ()
        self.addresses += [value or "" for name, value in attrs if name in loaded]


def parsed(text: str) -> Tags:
    found = Tags()
    found.feed(text)
    return found


def test_no_page_loads_from_another_host_or_runs_what_a_record_says(site: Path) -> None:
    for path in site.rglob("*.html"):
        found = parsed(path.read_text())
        assert not [address for address in found.addresses if re.match(r"\w+:|//", address) and "data:" not in address]
        assert found.handlers == [], path
        assert found.names.count("script") == 2, path  # the theme's line and site.js
    for name in ("site.css", "site.js"):
        assert "http" not in (site / name).read_text().replace("http://www.w3.org/2000/svg", "")


def test_hostile_records_are_text(site: Path) -> None:
    text = (site / "agents" / f"{HOSTILE}.html").read_text()
    assert "onerror" in text  # it is shown
    assert "<img src=x" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "no film" in text  # its film is no film


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.text(alphabet="<>&\"'=/ab \x1b\u202e", min_size=1, max_size=150))
@example(words=ATTACK)
def test_no_text_of_a_record_becomes_an_element(words: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    zoo = tmp_path_factory.mktemp("zoo")
    folder = copy_agent("unimask-doorkey", zoo / "one")
    plain, hostile = "plain", words.encode("utf-8", "replace").decode()
    pages = []
    for said in (plain, hostile):
        spoil(folder, "one", said)
        (entry,) = read_zoo(zoo).entries
        text = index_page(read_zoo(zoo), {entry.slug: Media(frozenset(), None)})
        pages.append((parsed(text).names, parsed(text).handlers, text))
    assert pages[0][:2] == pages[1][:2]
    assert all(one.isprintable() or one == "\n" for one in pages[1][2])


def test_markdown_of_a_card_brings_no_html_and_no_picture_of_another_host() -> None:
    text = "<script>x</script> ![a](https://e.org/a.png) ![b](b.png) [c](javascript:x) [d](d.md)\n\n<details>\n"
    text += "<summary>a &lt;b&gt;</summary>\n\n| a |\n|---|\n| <i> |\n\n</details>\n"
    found = as_html(text, lambda link: f"x/{link}" if link == "b.png" else None)
    assert "<script" not in found
    assert "e.org" not in found
    assert 'src="x/b.png"' in found
    assert 'href="javascript' not in found
    assert "<summary>a &lt;b&gt;</summary>" in found
    assert "<td>&lt;i&gt;</td>" in found
    assert section_of("---\na: b\n---\n\n# t\n\n## One\n\nx\n\n## Two\n\ny\n", "Two") == "y"


def test_attributes_and_text_are_escaped() -> None:
    assert spans("see `a <b>`.") == "see <code>a &lt;b&gt;</code>."
    assert breakable("a/<b_c>") == "a/<wbr>&lt;b_<wbr>c&gt;"
    assert element("b", "<i>", title='"x"') == '<b title="&#34;x&#34;">&lt;i&gt;</b>'


def test_rows_of_baselines_json_say_who_beats_bc(tmp_path: Path) -> None:
    """Clones with the agent's own returns, lowered and raised: it beats one and loses to the other."""
    small_zoo = tmp_path / "zoo"
    records = copy_agent("dt-hopper-medium", small_zoo / "dt-hopper-medium") / "results.json"
    results = Results.from_json(records.read_text(), "dt").model_copy(update={"yardsticks": ()})
    records.write_text(results.to_json())
    head = results.headline
    for shift, verdict in ((-500.0, "beats"), (500.0, "loses")):
        moved = head.model_copy(update={"returns": tuple(value + shift for value in head.returns), "score": 60.0})
        row = Baseline(method="bc", trained_with="x", result=moved)
        write_baselines(tmp_path / "b.json", Baselines().with_row("zoo/hopper/medium-v0", row))
        zoo = read_zoo(small_zoo, [tmp_path / "b.json"])
        (entry,) = [one for one in zoo.entries if one.agent_id == "dt-hopper-medium"]
        assert entry.compared is not None
        assert entry.compared.verdict == verdict
        assert ("bc", 60.0) in [(one.method, one.found.value) for one in standings(zoo) if one.found is not None]


def test_the_mark_of_bc_is_that_of_clones_on_the_same_episodes(tmp_path: Path) -> None:
    """A clone of the same data in another version of the environment is no mark of this task."""
    records = copy_agent("dt-hopper-medium", tmp_path / "zoo" / "dt") / "results.json"
    results = Results.from_json(records.read_text(), "dt")
    head = results.headline
    rows = []
    for seed, (env, score) in enumerate(((head.env, 50.0), (head.env, 70.0), ("Hopper-v4", 6.0))):
        result = head.model_copy(update={"env": env, "score": score, "training_seed": seed})
        rows.append(Baseline(method="bc", trained_with="x", result=result))
    records.write_text(results.model_copy(update={"yardsticks": tuple(rows)}).to_json())
    (entry,) = read_zoo(tmp_path / "zoo").entries
    text = index_page(read_zoo(tmp_path / "zoo"), {entry.slug: Media(frozenset(), None)})
    cards = text[text.index('<div id="grid"') :]
    assert re.findall(r'<i class="clone" style="left:([^"]+)"', cards) == ["60.00%"]


def test_an_agent_that_was_not_measured_has_no_seed(tmp_path: Path) -> None:
    (copy_agent("dt-hopper-medium", tmp_path / "zoo" / "dt") / "results.json").unlink()
    zoo = read_zoo(tmp_path / "zoo")
    text = index_page(zoo, {zoo.entries[0].slug: Media(frozenset(), None)})
    assert "not measured yet" in text
    assert "1 seed" not in text
    assert 'data-seeds=""' in text


def test_the_leaderboard_s_files_hold_its_numbers(site: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((site / "leaderboard.csv").read_text())))
    tree = json.loads((site / "leaderboard.json").read_text())
    assert [row["method"] for row in rows] == [row["method"] for row in tree["rows"]]
    (dm,) = [row for row in tree["rows"] if row["agent"] == "dm-hopper-medium"]
    assert dm["value"] == pytest.approx((95.554 + 95.440 + 95.749) / 3, abs=0.001)
    assert (dm["interval"], dm["trainings"]) == ("training seeds", 3)
    assert (dm["published"], dm["published_spread"]) == (98.5, 8.19)
    (dt,) = [row for row in tree["rows"] if row["agent"] == "dt-hopper-medium"]
    assert (dt["interval"], dt["trainings"], dt["episodes"]) == ("training seeds", 3, 300)
    single = [row for row in tree["rows"] if row["trainings"] == 1]
    assert single
    assert {row["interval"] for row in single} == {"episodes"}
    clone = next(row for row in tree["rows"] if row["method"] == "bc")
    assert (clone["interval"], clone["trainings"], clone["episodes"]) == ("training seeds", 3, 300)
    assert tree["statistics"]["tasks"] == ["hopper-medium"]
    assert tree["statistics"]["runs"]["dt"] == 3
    chances = {(one["of"], one["over"]): one["value"] for one in tree["statistics"]["probability_of_improvement"]}
    assert chances["dm", "dt"] + chances["dt", "dm"] == pytest.approx(1.0)


def test_a_cell_that_a_spreadsheet_would_run_is_text(small_zoo: Path, tmp_path: Path) -> None:
    spoil(copy_agent("unimask-doorkey", tmp_path / "zoo" / "x"), "x", "=1+1")
    found = standings(read_zoo(tmp_path / "zoo"))
    assert ",=1+1," not in as_csv(found)
    assert ",'=1+1," in as_csv(found)
    assert compare(found) is None  # one method, without scores


def test_pictures_follow_the_records(small_zoo: Path) -> None:
    (entry,) = [one for one in read_zoo(small_zoo).entries if one.agent_id == "gpt2-dtma-pointmaze-medium"]
    assert [one.title for one in training_curves(entry)] == [
        *("Loss", "Evaluations", "Errors on fixed windows", "Gates")
    ]
    asked = asked_and_achieved(entry)
    assert asked is not None
    assert len(asked.rows) == 8
    assert "It hardly reacts" in asked.caption
    axis = Axis.over("x", [1.0, 3.0, float("nan")], room=0.0)
    assert (axis.share(1.0), axis.share(2.0), axis.share(3.0)) == (0.0, 0.5, 1.0)
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert [short(value) for value in (12000.0, 0.05, 1500.0, 0.0, 3e-05)] == ["12k", "0.05", "1,500", "0", "3e-05"]


def test_a_maze_whose_episodes_do_not_end_at_the_goal_is_measured_by_its_return(tmp_path: Path) -> None:
    """Else an agent that beats bc in return stands beside it with fewer goals."""
    for name in ("unimask-maze2d-dense", "unimask-pointmaze-medium", "dt-breakout-replay"):
        copy_agent(name, tmp_path / "zoo" / name)
    breakout, dense, sparse = sorted(read_zoo(tmp_path / "zoo").entries, key=lambda one: one.agent_id)
    assert dense.measure()[1] == "return"
    assert dense.interval() is not None
    assert sparse.measure()[1] == "reach the goal"
    assert sparse.interval() is None
    assert [one.title for one in training_curves(breakout)] == ["Loss", "Evaluations", "Errors on fixed windows"]


def test_an_agent_of_several_trainings_is_shown_by_their_mean(tmp_path: Path) -> None:
    """75.5, 35.5 and 48.0 are 53.0; the first alone is the highest."""
    folder = copy_agent("dt-hopper-medium-replay", tmp_path / "zoo" / "dt-hopper-medium-replay")
    tree = json.loads((folder / "results.json").read_text())
    for one, score in zip((tree["headline"], *tree["seeds"]), (75.5, 35.5, 48.0), strict=True):
        one.update(score=score, score_interval=[score - 1, score + 1], mean_return=10 * score)
    (folder / "results.json").write_text(json.dumps(tree))
    zoo = read_zoo(tmp_path / "zoo")
    (entry,) = zoo.entries
    assert entry.measure() == ("53.0", "normalized score")
    assert entry.interval() == (35.5, 75.5)
    assert entry.return_in_words() == "530 [355, 755]"
    assert entry.measure("window") == ("75.5", "normalized score")  # of these weights
    text = index_page(zoo, {entry.slug: Media(frozenset(), None)})
    assert "<b>53.0</b>" in text
    assert "35.5 to 75.5" in text
    assert "53.0 [35.5, 75.5]" in text
    assert 'data-score="53.0000"' in text
    assert 'data-return="530"' in text


def test_the_leaderboard_begins_with_the_task_of_most_methods(small_zoo: Path) -> None:
    text = leaderboard_page(standings(read_zoo(small_zoo)), None)
    assert re.findall(r'<a href="#task-1">([^<]+)</a>', text) == ["hopper-medium"]


def test_the_best_share_is_counted_in_steps() -> None:
    returns, lengths = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([10.0, 10.0, 30.0, 25.0, 25.0])
    assert best_share(returns, lengths, 0.2) == (4.0, 2)
    assert best_share(returns, lengths, 0.01) == (5.0, 1)


def test_frames_come_from_the_recorded_episode_or_not_at_all(
    small_zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset of DoorKey, built here: its first episode again, and none once an observation is another."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    assert CliRunner().invoke(app, ["data", "build", "doorkey/train-50"]).exit_code == 0
    (entry,) = [one for one in read_zoo(small_zoo).entries if one.agent_id == "unimask-doorkey"]
    data = entry.recipe.data.model_copy(update={"dataset": "zoo/doorkey/train-50-v0"})
    entry = entry._replace(recipe=entry.recipe.replace(data=data))
    found = write_frames(entry, tmp_path / "out", "datasets/x")
    assert found is not None
    assert [step for _, step in found.pictures] == [0, 2, 4, 7, 9]
    assert "return" in found.said
    assert Image.open(tmp_path / "out" / "step-9.jpg").size == (336, 336)
    with h5py.File(tmp_path / "data" / "zoo" / "doorkey" / "train-50-v0" / "data" / "main_data.hdf5", "r+") as file:
        group = file["episode_0"]["observations"]
        name = sorted(group)[0]
        group[name][3] = 1 - group[name][3]
    assert write_frames(entry, tmp_path / "other", "x") is None
    assert not (tmp_path / "other").exists()


def test_names_of_files_and_methods() -> None:
    assert slug_of("../Ä b", ()) == "b"
    assert slug_of("b", ("b", "b-2")) == "b-3"
    assert slug_of("…", ()) == "agent"
    assert method_of("gpt2-dt-hopper-medium-scratch", "gpt2-dt", "hopper-medium") == "gpt2-dt-scratch"
    assert method_of("unimask-doorkey", "unimask", "doorkey-train-500") == "unimask"
    assert method_of("dt-mine", "dt", "hopper-medium") == "dt-mine"


def test_a_folder_that_is_no_site_is_not_replaced(small_zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match="holds no site"):
        build_site(tmp_path / "own", small_zoo)
    with pytest.raises(ConfigError, match="holds no agent"):
        build_site(tmp_path / "new", tmp_path / "own")
    assert (tmp_path / "own" / "thesis.txt").read_text() == "years of work"
    assert not (tmp_path / "new").exists()


def test_one_broken_agent_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    copy_agent("unimask-doorkey", tmp_path / "zoo" / "whole")
    (copy_agent("unimask-doorkey", tmp_path / "zoo" / "broken") / "results.json").write_text("{")
    done = CliRunner().invoke(app, ["site", str(tmp_path / "out"), "--zoo", str(tmp_path / "zoo"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["agents"] == 1
    index = (tmp_path / "out" / "index.html").read_text()
    assert "Could not be read" in index
    assert "<code>broken</code>" in index
    before = (tmp_path / "out" / MARK).stat().st_ino
    again = CliRunner().invoke(app, ["site", str(tmp_path / "out"), "--zoo", str(tmp_path / "zoo")])
    assert again.exit_code == 0
    assert (tmp_path / "out" / MARK).stat().st_ino != before


@pytest.mark.slow
def test_the_whole_zoo_is_small_and_takes_less_than_a_minute(tmp_path: Path) -> None:
    before = os.times()
    built = build_site(tmp_path / "out", ROOT / "hub_cards")
    assert sum(os.times()[:4]) - sum(before[:4]) < 60  # of processors: others may be at work here
    assert built.bytes < 100 * MEGABYTE
    assert built.unreadable == ()
    films = len(list((tmp_path / "out").rglob("replay.mp4")))
    assert films == len(list((tmp_path / "out").rglob("poster.jpg"))) == built.agents


def test_commands_carry_the_trust_that_an_environment_needs(small_zoo: Path) -> None:
    entry = read_zoo(small_zoo).entries[0]
    own = entry.config.model_copy(update={"env": "own:Grid-v0", "env_options": {"bonus": 1.5}})
    for config, ending in ((entry.config, ""), (own, " --trust-env-module --trust-env-options")):
        lines = [line for _, line in commands(entry._replace(config=config))]
        assert len(lines) == 3
        assert all(line.endswith(ending) and ("--trust" in line) == bool(ending) for line in lines)
