"""Cards: made from records, complete, and valid on the Hub."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from conftest import make_agent
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.evaluation.results import Result
from agentzoo.hub.card import card_text, check_card, write_card
from agentzoo.hub.front_matter import check_metadata, hub_name
from agentzoo.hub.records import read_records
from agentzoo.models.bc import BCConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.base import ModelConfig
from agentzoo.store.locate import staged_agents
from hub.conftest import REPO, edit
from hub.server import Hub

STAGED = sorted(staged_agents().items())
ONE_OF_EACH = {(name.split("-")[0], name.split("-")[1]): (name, folder) for name, folder in STAGED}  # family and task
SECTIONS = ["How good is it", "Use it", "Limits", "Details"]
DETAILS = ["How it was trained", "How it was measured, and all rows", "Citation"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BCConfig(embed_dim=16), "It reads the last 4 observations and nothing else, and predicts the next action."),
        (
            DTConfig(embed_dim=16),
            "It reads the last 4 steps (return-to-go, observation, action) and predicts the next action.",
        ),
        (UniMaskConfig(embed_dim=16, ffn_dim=16, acts_on_returns=False), "the last 4 steps (observation, action) and"),
    ],
)
def test_a_card_says_what_its_network_reads(model: ModelConfig, words: str, tmp_path: Path) -> None:
    assert words in card_text(make_agent(model=model).save_pretrained(tmp_path / "agent"))


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_cards_say_all_that_a_card_must(agent_id: str, folder: Path) -> None:
    text = (folder / "README.md").read_text()
    data = check_metadata(text)
    _, recipe, results = read_records(folder)
    license_ = recipe.model.weights_license()  # a backbone's own may ask for another
    assert license_ == ("apache-2.0" if agent_id.startswith("smollm-") else "mit")
    assert (data.library_name, data.license, data.pipeline_tag) == ("agentzoo", license_, "reinforcement-learning")
    assert {"reinforcement-learning", "offline-rl"} <= set(data.tags)
    assert data.datasets is None  # the zoo's own collections are not on the Hub
    head = results.headline
    assert data.model_name == agent_id
    first, *others = data.eval_results
    assert (first.metric_type, first.metric_value) == ("mean_reward", round(head.mean_return, 2))
    assert (first.dataset_type, first.dataset_name) == (hub_name(head.env), head.env)
    low, high = head.return_interval
    assert f"95 % interval {low:.2f} to {high:.2f}" in first.metric_name
    assert [one.metric_value for one in others] == ([] if head.score is None else [round(head.score, 2)])
    differs = ["Deviations from the paper"] if recipe.model.deviations() else []
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == [*SECTIONS[:-1], *differs, SECTIONS[-1]]
    differing = recipe.model.family in ("dm", "unimask", "dt-pixel") or agent_id.startswith("chibit")
    assert len(differs) == (differing or recipe.model.max_ep_len == 1)
    start = recipe.model.origin()
    if start is not None and start.backbone in ("lm-mini", "lm-chibi", "clip-mini"):
        line = text.split(f"# {agent_id}\n")[1].splitlines()[3]
        assert f"`{start.backbone}`" in line
        assert ("bits per byte" in line and "SmolLM2" in line) or "never was a language model" in line
    assert all(f"<summary>{one}</summary>" in text for one in DETAILS)
    assert len(text.split("## Details")[0].split("---\n")[2]) < 4_500  # a page
    for words in (
        "agentzoo train train_config.json",
        results.training.hardware,
        f"{recipe.train.steps:,} updates",
        "seed",
    ):
        assert words in text
    assert f"`{head.command}`" in text
    assert "@misc{" in text


@pytest.mark.parametrize(("agent_id", "folder"), ONE_OF_EACH.values())
def test_quickstart_of_a_staged_card_runs(agent_id: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one episode of at most 100 steps: what is asked is whether the words are right."""
    make = gym.make
    monkeypatch.setattr(gym, "make", lambda env, **options: make(env, **({"max_episode_steps": 100} | options)))
    found = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    assert found
    scope: dict[str, Any] = {}
    exec(found[1].replace("n_envs=4", "n_envs=1").replace("n_eval_episodes=4", "n_eval_episodes=1"), scope)
    assert math.isfinite(scope["mean"])  # a maze may be lost


def test_a_fine_tune_names_the_repo_of_its_base_if_it_came_from_one(folder: Path) -> None:
    edit(folder, "train_config.json", base="dt-hopper-medium")
    for text in (card_text(folder), card_text(folder, "me/mine")):
        assert check_metadata(text).base_model is None  # a repo of that name may not exist
        assert "fine-tuned from `dt-hopper-medium`." in text
        assert "agentzoo finetune dt-hopper-medium --recipe" in text
    edit(folder, "train_config.json", base_repo="org/hopper", base_revision="0123456789" * 4)
    for text in (card_text(folder), card_text(folder, "me/mine")):
        assert check_metadata(text).base_model == "org/hopper"
        assert "fine-tuned from `org/hopper` at commit `012345678901`." in text
        assert f"agentzoo finetune org/hopper --revision {'0123456789' * 4} --recipe" in text


def test_a_card_mentions_a_training_that_ran_out_of_patience(folder: Path) -> None:
    planned = read_records(folder)[1].train.steps
    assert f"\n{planned:,} updates of " in card_text(folder)
    results = read_records(folder)[2]
    training = results.training.model_copy(update={"updates": 3})
    (folder / "results.json").write_text(results.model_copy(update={"training": training}).to_json())
    assert "\n3 updates of " in card_text(folder)
    edit(folder, "train_config.json", train__patience=1, eval__every=1)
    assert f"\n3 updates (of at most {planned:,}; its evaluations got no better) of " in card_text(folder)


def test_a_card_mentions_a_training_in_bfloat16(folder: Path) -> None:
    assert "bfloat16" not in card_text(folder)
    train = read_records(folder)[1].train.model_copy(update={"precision": "bf16"})
    edit(folder, "train_config.json", train=train.model_dump(mode="json"))
    assert f"seed {train.seed}, matrix products in bfloat16, " in card_text(folder)


def test_a_card_says_how_far_its_agent_can_be_trusted(folder: Path) -> None:
    results = read_records(folder)[2]
    assert "These are results of one training seed." in card_text(folder)
    head = results.headline

    def reaching(*returns: float, first: float = 100.0, spread: float = 5.0, episodes: int = 20) -> tuple[Result, ...]:
        """Targets 100, 200, ... above `first`; half of the episodes `spread` above the mean, half below."""
        return tuple(
            head.model_copy(
                update={
                    "target_return": first + 100.0 * i,
                    "episodes": episodes,
                    "mean_return": value,
                    "return_interval": (value - 5.0, value + 5.0),
                    "returns": tuple(value + side * spread for side in (-1.0, 1.0) * (episodes // 2)),
                }
            )
            for i, value in enumerate(returns)
        )

    def said(**changes: Any) -> str:
        (folder / "results.json").write_text(results.model_copy(update={"plotted": True, **changes}).to_json())
        return card_text(folder)

    more, flat = "show no further gain", "It hardly reacts to what it is asked for."
    falling = said(targets=reaching(200.0, 150.0, 100.0))
    assert "Higher targets show no gain over the lowest (20 episodes per target)." in falling
    assert more not in falling
    assert f"Targets above 300 {more} (20 episodes per target)." in said(
        targets=reaching(100.0, 197.0, 200.0, 190.0)
    )  # 197 is less by 3 in every single episode, however wide its interval
    some = reaching(100.0, 197.0, 200.0, 190.0)
    noisy = (some[0], some[1].model_copy(update={"returns": some[1].returns[::-1]}), *some[2:])  # by 13 or by -7
    assert f"Targets above 200 {more}" in said(targets=noisy)
    assert more not in said(targets=reaching(100.0, 197.0, 200.0, 190.0, episodes=8))
    obeying = said(targets=reaching(100.0, 200.0, 300.0))
    assert (more in obeying, flat in obeying) == (False, False)
    below = said(targets=reaching(-1000.0, -900.0, -800.0, first=-1000.0))
    assert (more in below, flat in below) == (False, False)  # the span counts, not where zero is
    for returns in ((0.0, 0.0, 0.0), (500.0, 520.0, 540.0)):
        assert flat in said(targets=reaching(*returns))
    once = said(targets=reaching(80.0))
    assert (more in once, flat in once) == (False, False)
    _, high = head.return_interval
    above = results.dataset.model_copy(update={"mean_return": high + 1})
    assert "It returns less (" in said(dataset=above)
    assert "It returns less (" not in said(dataset=above.model_copy(update={"mean_return": high}))  # by chance
    seeds = tuple(head.model_copy(update={"mean_return": head.mean_return + add}) for add in (-1.0, 2.0))
    text = said(seeds=seeds)
    assert "one training seed" not in text
    assert re.search(r"3 training seeds were measured\. They return [-0-9.]+ to [-0-9.]+\.\n", text)
    assert re.search(r"They return [-0-9.]+\.\n", said(seeds=(head, head)))  # not 1.00 to 1.00


def test_a_dataset_of_the_zoo_is_made_before_training(folder: Path) -> None:
    assert "agentzoo data build" not in card_text(folder)
    for dataset, command in (
        (
            "zoo/hopper/medium-v0",
            "agentzoo data build hopper/medium --sources DIR --trust-policies\nagentzoo train train_config.json",
        ),
        ("zoo/doorkey/train-50-v0", "agentzoo data build doorkey/train-50\nagentzoo train train_config.json"),
    ):
        edit(folder, "train_config.json", data__dataset=dataset)
        assert command in card_text(folder)
        assert ("are not distributed" in card_text(folder)) is ("hopper" in dataset)
    (folder / "results.json").unlink()
    edit(folder, "train_config.json", data__dataset="zoo/hopper/medium-expert-v0")
    text = card_text(folder)
    assert "agentzoo data build hopper/medium-expert --sources DIR --trust-policies\n" in text
    assert "are not distributed" in text
    assert "Loading one runs the code it holds" in text


def test_what_a_masked_agent_can_be_asked_is_what_it_was_trained_on(tmp_path: Path) -> None:
    question = "agentzoo research infer zoo/dt-test --task past"
    for tasks, asked in ((("rnd",), True), (("bc",), False)):
        model = UniMaskConfig(embed_dim=16, ffn_dim=16, tasks=tasks)
        text = card_text(make_agent(model=model).save_pretrained(tmp_path / tasks[0]))
        assert (question in text) is asked
        assert ("fills in whatever of them is hidden" in text) is asked
        assert ("and predicts the next action." in text) is not asked


def test_a_card_says_what_its_backbone_knows_of_language(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    shutil.copytree(dict(STAGED)["gpt2-dt-hopper-medium"], folder)
    known = json.loads((dict(STAGED)["gpt2-dt-hopper-medium"].parent / "backbones.json").read_text())
    known["backbones"]["lm-mini"] = {"bits_per_byte": 2.5}
    (tmp_path / "backbones.json").write_text(json.dumps(known))
    write_card(folder, zoo=tmp_path)
    said = "`lm-mini`, hardly knows English: it needs 2.50 bits per byte on the first 60 kB of WikiText-2's validation "
    said += "text"
    assert f"{said}, where SmolLM2-135M-Instruct needs 1.03.\n" in (folder / "README.md").read_text()
    known["backbones"]["lm-mini"] = {"taught": "x", "bits_per_byte": 2.5}
    (tmp_path / "backbones.json").write_text(json.dumps(known))
    with pytest.raises(ConfigError, match="exactly one of bits_per_byte and taught"):
        write_card(folder, zoo=tmp_path)


def test_a_card_names_the_repo_it_is_pushed_to_and_the_extras(folder: Path) -> None:
    assert 'from_pretrained("zoo/dt-test"' in card_text(folder)
    for env, needs in (
        ("CartPole-v1", "needs no extra."),
        ("agentzoo/DoorKey-4x4-v0", "needs no extra."),
        ("FrozenLake8x8-v1", "needs no extra."),
        ("gymnasium.envs.classic_control:CartPole-v1", "needs no extra."),
        ("LunarLander-v3", "also needs gymnasium[box2d]."),
        ("mine.envs:My-v0", "also needs the package with the module mine.envs."),
        (None, "also needs the package of your environment."),
        ("tests/Counting-v0", "also needs the package that registers tests/Counting-v0."),
    ):
        edit(folder, "config.json", env=env)
        assert f"`pip install -e .`. This environment {needs}\n" in card_text(folder)
    edit(folder, "config.json", env="Hopper-v5")
    (folder / "README.md").write_text(card_text(folder, "me/mine"))
    text = (folder / "README.md").read_text()
    assert 'from_pretrained("me/mine"' in text
    assert "zoo/dt-test" not in text
    assert "`pip install -e '.[mujoco]'`. This environment needs the extra `mujoco`." in text
    check_card(folder)
    write_card(folder)  # keeps the repo
    assert (folder / "README.md").read_text() == text


def test_only_datasets_of_the_hub_are_in_the_metadata(folder: Path) -> None:
    assert check_metadata(card_text(folder)).datasets is None
    edit(folder, "train_config.json", data__dataset="mujoco/hopper/medium-v0")
    assert check_metadata(card_text(folder)).datasets == ["farama-minari/mujoco"]


def test_a_card_says_which_rule_gave_the_target(folder: Path) -> None:
    assert "The target was set by hand in the recipe." in card_text(folder)
    best = read_records(folder)[2].dataset.best_return
    edit(folder, "train_config.json", eval__target_rule="max", eval__target_return=best)
    assert "The target is the best return in the data." in card_text(folder)
    edit(folder, "train_config.json", eval__target_return=best + 1.0)
    other = f"The target was the best return in another collection of this dataset; here it is {best:g}."
    assert other in card_text(folder)


def test_an_environment_with_options_is_made_with_them(folder: Path) -> None:
    edit(folder, "config.json", env="PointMaze_Medium-v3", env_options={"continuing_task": False})
    text = card_text(folder)
    assert 'make_vec_env(lambda: make_env("PointMaze_Medium-v3", continuing_task=False), n_envs=4)' in text
    assert "\nEnvironment `tests/Counting-v0` with `continuing_task=False`, target return 50, " in text


def test_push_list_pull_card_and_verify_as_a_user_runs_them(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """push, list --remote, pull, card and verify as a user runs them."""
    runner = CliRunner()
    monkeypatch.chdir(tmp_path)
    done = json.loads(runner.invoke(app, ["hub", "push", str(folder), REPO, "--tag", "v1", "--json"]).stdout)
    assert done["commit"] == hub.repos[REPO].tags["v1"]
    listed = json.loads(runner.invoke(app, ["list", "--remote", "--json"]).stdout)
    assert [one["repo_id"] for one in listed] == [REPO]
    assert REPO in runner.invoke(app, ["list", "--remote"]).stdout
    pulled = runner.invoke(app, ["hub", "pull", REPO, "--revision", "v1"])
    assert (pulled.exit_code, "`agentzoo hub verify dt-test` checks" in " ".join(pulled.stdout.split())) == (0, True)
    before = (tmp_path / "dt-test" / "README.md").read_bytes()
    assert runner.invoke(app, ["hub", "card", "dt-test"]).exit_code == 0
    assert (tmp_path / "dt-test" / "README.md").read_bytes() == before
    verified = runner.invoke(app, ["hub", "verify", "dt-test", "-n", "2", "--json"])
    assert (verified.exit_code, json.loads(verified.stdout)["holds"]) == (0, True)
    edit(tmp_path / "dt-test", "train_config.json", data__rtg_scale=2.0)
    refused = runner.invoke(app, ["hub", "verify", "dt-test", "-n", "2"])
    assert refused.exit_code == 1
    assert "NO" in refused.stdout


def test_a_license_is_written_into_config_and_card_or_refused(folder: Path) -> None:
    before = (folder / "README.md").read_text()
    write_card(folder, "apache-2.0")
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
    assert Agent.from_pretrained(folder).config.license == "apache-2.0"
    check_card(folder)
    write_card(folder)
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
    kept = (folder / "config.json").read_text()
    for name, words in (
        ("My own words: pay me", "license"),
        ("apache-2", "Did you mean 'apache-2.0'"),
        ("MIT", "Did you mean 'mit'"),
        ("nonsense", "mit"),
    ):
        with pytest.raises(ConfigError, match=words):
            write_card(folder, name)
    assert (folder / "config.json").read_text() == kept
    (folder / "config.json").write_text(kept.replace('"apache-2.0"', '"nonsense"'))
    write_card(folder)
    with pytest.raises(CheckpointError, match=r"license 'nonsense' is not one that it knows \(use `other`\)"):
        check_card(folder)
    write_card(folder, "openrail++")
    check_card(folder)
    assert Agent.from_pretrained(folder).config.license == "openrail++"
    write_card(folder, "mit")
    assert (folder / "README.md").read_text() == before
