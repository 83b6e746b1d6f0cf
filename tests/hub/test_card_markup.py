"""Cards are harmless whatever the records hold, and what the Hub would refuse is refused here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.hub.card import card_text
from agentzoo.hub.front_matter import check_metadata, code, inline
from agentzoo.store.downloads import is_repo_id
from hub.conftest import edit
from hub.server import Hub, Repo

HOSTILE = (
    "fine](http://evil.example) <script>alert(1)</script>\n\n# Not a heading\n---\nlicense: stolen\n---\n"
    "```\nrm -rf /\n``` | a | b | ![x](http://evil.example/x.png) \x1b[31m [red]rich[/red] [/oops] &lt;b&gt; `code`"
)


def test_markup_in_the_records_has_no_effect_on_the_card(folder: Path) -> None:
    plain = card_text(folder)
    edit(
        folder,
        "results.json",
        dataset__made_by=HOSTILE,
        training__hardware=HOSTILE,
        headline__command=HOSTILE,
        headline__env=HOSTILE,
        headline__versions={HOSTILE: HOSTILE},
    )
    edit(folder, "config.json", env_options={"x": HOSTILE})
    text = card_text(folder)
    body = ModelCard(text).content.split("\n---\n", 1)[1]
    assert ModelCard(text).data.license == "mit"
    assert re.findall(r"^#+ .*$", body, flags=re.MULTILINE) == re.findall(r"^#+ .*$", plain, flags=re.MULTILINE)
    assert body.count("```") == plain.count("```")
    outside = re.sub(r"```.*?```|(?<!\\)`[^`\n]*`", "", body, flags=re.DOTALL)  # where Markdown means something
    own = re.compile(r"^(?:</?details>|<summary>[^<>]*</summary>)$", flags=re.MULTILINE)  # the template's
    assert len(own.findall(outside)) == len(own.findall(plain))
    outside = own.sub("", outside)
    assert not re.search(r"(?<!\\)[<>]|(?<!\\)\[fine|(?<!\\)\]\(http|\x1b", outside)
    snippet = re.search(r"```python\n(.*?)```", body, flags=re.DOTALL)
    assert snippet
    compile(snippet[1], "quickstart", "exec")
    assert "__import__" not in snippet[1]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("train_config.json", "data__dataset"),
        ("train_config.json", "eval__env"),
        ("train_config.json", "base"),
        ("train_config.json", "base_repo"),
        ("train_config.json", "base_revision"),
        ("config.json", "env"),
        ("config.json", "agent_id"),
    ],
)
@pytest.mark.parametrize("value", [HOSTILE, "x\", n_envs=__import__('os').getpid()) #", "../../etc", "a b", ""])
def test_malformed_names_are_refused(folder: Path, name: str, field: str, value: str) -> None:
    edit(folder, name, **{field: value})
    with pytest.raises(ConfigError, match=rf"{name} cannot be used: {field.replace('__', '.')}: String should match"):
        card_text(folder)
    edit(folder, "config.json", env_options={value: 1})
    with pytest.raises(ConfigError):
        Agent.from_pretrained(folder)


@pytest.mark.parametrize("text", [HOSTILE, "", "a" * 10_000, "\x00\x1b]0;title\x07", "ünï ✓"])
def test_words_of_others_become_one_line(text: str) -> None:
    for made in (inline(text), code(text)):
        assert made.isprintable()
        assert len(made) <= 2_000
    assert "`" not in code(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("license: mit\n", ""), "license is missing"),
        (lambda t: t.replace("library_name: agentzoo", "library_name: other"), "library_name is 'other'"),
        (lambda t: t.replace("type: tests-Counting-v0", "type: a/b/c"), "'a/b/c' is not a dataset name"),
        (lambda t: t.replace("---\n", "---\n: [", 1), "cannot be read"),
        (lambda t: t.replace("model-index:", "model-index: 3 #"), "cannot be read"),
    ],
)
def test_metadata_the_hub_would_refuse_is_refused_here(folder: Path, change: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        check_metadata(change(card_text(folder)))


@pytest.mark.parametrize(
    "name", ["a/b/c", "..", "a/..", "../a", "a/b\n", "a--b/c", "a /b", "", "/", "a/", "x" * 200 + "/y"]
)
def test_malformed_repo_ids_are_refused(name: str) -> None:
    assert not is_repo_id(name)


def test_names_with_markup_are_shown_as_they_are(hub: Hub, folder: Path) -> None:
    hub.repos["x/y"] = Repo()
    card = card_text(folder).replace("name: mean_reward, 3 episodes", "name: mean [/red] [bold]return, 3")
    hub.repos["x/y"].commit({"README.md": card.encode()})
    done = CliRunner().invoke(app, ["list", "--remote"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "mean [/red] [bold]return" in done.stdout
    edit(folder, "train_config.json", eval__env_options={"x": "[/oops][red]x"})
    shown = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "[/oops][red]x" in shown.stdout
