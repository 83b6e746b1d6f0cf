"""What a card says beside its agent's score: baselines, other ways to act, published numbers, other seeds."""

from __future__ import annotations

from pathlib import Path

from agentzoo.evaluation.baselines import Baselines, write_baselines
from agentzoo.evaluation.results import Baseline
from agentzoo.hub.card import card_text, check_card, write_card
from agentzoo.hub.records import read_records
from hub.conftest import edit


def test_a_checkpoint_that_is_the_final_one_has_no_row_of_its_own(folder: Path) -> None:
    results = read_records(folder)[2]
    row = "| best checkpoint (not published) |"
    same = results.headline.model_copy(update={"checkpoint": "best"})
    other = same.model_copy(update={"returns": tuple(value + 1 for value in same.returns)})
    for best, shown in ((same, False), (other, True)):
        (folder / "results.json").write_text(results.model_copy(update={"best": best}).to_json())
        assert (row in card_text(folder)) is shown
        assert ("was chosen by short evaluations" in card_text(folder)) is shown


def test_an_agent_measured_in_two_ways_says_which_is_its_own(folder: Path) -> None:
    assert "agent.acting" not in card_text(folder)
    results = read_records(folder)[2]
    other = results.headline.model_copy(update={"acting": "recurrent", "mean_return": 1.25})
    (folder / "results.json").write_text(results.model_copy(update={"acting": (other,)}).to_json())
    text = card_text(folder)
    assert '`agent.acting` is "window" by default' in text
    assert "| **this agent**, window acting |" in text
    assert "| same weights, recurrent acting | 1.25 " in text


def test_the_published_number_stands_beside_ours(folder: Path) -> None:
    edit(folder, "config.json", agent_id="dt-hopper-medium")
    assert "published" not in card_text(folder)  # it acts somewhere else
    edit(folder, "config.json", env="Hopper-v5")
    assert "published" not in card_text(folder)  # it learned something else
    edit(folder, "train_config.json", data__dataset="mujoco/hopper/medium-v0")
    text = card_text(folder)
    assert "| published: Chen et al. 2021, arXiv:2106.01345 | 67.6 ± 1 |  |  |  |" in text.splitlines()
    learned = "mujoco/hopper/medium-v0"
    rule = "the paper does not say of which checkpoint and of which of its two targets.\n"
    assert f"not comparable one to one: this agent learned from `{learned}`; training here is shorter; {rule}" in text
    edit(folder, "train_config.json", data__dataset="zoo/hopper/medium-v0")
    own = "our data is our own collection on a newer environment version; "
    assert f"{own}training here is shorter; {rule}" in card_text(folder)
    edit(folder, "results.json", training__updates=100_000)
    assert own + rule in card_text(folder)


def test_a_card_mentions_a_target_below_the_score_of_the_paper(folder: Path) -> None:
    edit(folder, "config.json", agent_id="dt-hopper-medium", env="Hopper-v5")
    edit(folder, "train_config.json", data__dataset="zoo/hopper/medium-v0")
    references = {"headline__random_reference": 0.0, "headline__expert_reference": 3000.0}
    edit(folder, "results.json", headline__target_return=1800.0, **references)
    text = card_text(folder)
    assert "target return 1800 (a score of 60.0), " in text
    assert "; this agent was asked for less, a score of 60.0; " in text
    edit(folder, "results.json", headline__target_return=3600.0)
    text = card_text(folder)
    assert "target return 3600 (a score of 120.0), " in text
    assert "asked for less" not in text


def test_several_training_seeds_have_a_row_of_their_mean(folder: Path) -> None:
    results = read_records(folder)[2]
    assert "training seeds" not in card_text(folder)
    shown = {"score": 10.0, "score_interval": (9.0, 11.0), "mean_return": 200.0, "mean_length": 30.0, "episodes": 100}
    head = results.headline.model_copy(update=shown)
    others = tuple(
        head.model_copy(update={"score": score, "mean_return": reached, "mean_length": steps})
        for score, reached, steps in ((20.0, 300.0, 40.0), (60.0, 400.0, 50.0))
    )
    (folder / "results.json").write_text(results.model_copy(update={"headline": head, "seeds": others}).to_json())
    row = next(line for line in card_text(folder).splitlines() if line.startswith("| this recipe, mean of"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "this recipe, mean of 3 training seeds"
    assert cells[1] == "30.0 ± 26.5 [10.0, 60.0]"
    assert cells[2] == "300 ± 100 [200, 400]"
    assert cells[-2:] == ["40", "300"]
    lines = card_text(folder).splitlines()
    own = next(line for line in lines if line.startswith("| **this agent**, training seed"))
    assert lines.index(own) == lines.index(row) + 1  # the mean comes first
    said = "**Normalized score 30.0 ± 26.5 [10.0, 60.0]**, return 300 ± 100 [200, 400]: mean ± standard deviation of 3 "
    assert any(line.startswith(said) for line in lines)
    (folder / "results.json").write_text(results.model_copy(update={"headline": head}).to_json())
    assert "| **this agent**, one training seed | 10.0 [9.0, 11.0] | " in card_text(folder)


def test_a_card_says_when_its_training_was_as_good_as_in_the_end(folder: Path) -> None:
    updates = read_records(folder)[1].train.steps
    rose = (
        ((1, 10), (2, 49), (3, 50)),
        "the first score at most 2 points below the last one came after 2 updates, 2 minutes of training. ",
    )
    rises = ((1, 10), (2, 47), (updates, 50)), "the last score is more than 2 points above all earlier ones. "
    assert "2 points" not in card_text(folder)
    for scores, says in (rose, rises):
        rows = "".join(f"{step},{score},{step * 60}\n" for step, score in scores)
        (folder / "training_log.csv").write_text(f"step,eval_score,seconds\n{rows}")
        write_card(folder, zoo=folder.parent)
        assert says in (folder / "README.md").read_text()
        check_card(folder)


def test_a_row_names_the_updates_of_a_baseline_with_another_budget(folder: Path) -> None:
    results = read_records(folder)[2]
    done = results.training.updates or read_records(folder)[1].train.steps
    same, longer = (
        results.headline.model_copy(update={"agent_id": "bc-test", "updates": updates, "training_seed": 0})
        for updates in (done, 20_000)
    )
    record = results.model_copy(update={"baselines": (same, longer)}).to_json()
    (folder / "results.json").write_text(record)
    rows = [line for line in card_text(folder).splitlines() if line.startswith("| bc-test")]
    assert rows[0].startswith("| bc-test, training seed 0 | ")
    assert rows[1].startswith("| bc-test, training seed 0, 20,000 updates | ")


def columns(folder: Path) -> list[str]:
    """Of the card's table of results."""
    head = card_text(folder).split("## How good is it")[1].split("\n")[2]
    return [cell.strip() for cell in head.strip("| ").split("|")]


def test_a_table_has_the_columns_that_its_rows_fill(folder: Path) -> None:
    assert columns(folder) == ["agent", "return", "length", "episodes"]
    edit(folder, "results.json", headline__success_rate=0.125, headline__score=37.5)
    assert columns(folder) == [
        *("agent", "normalized score", "return", "success", "steps over successes", "steps over all", "episodes")
    ]
    own = next(line for line in card_text(folder).splitlines() if line.startswith("| **this agent"))
    cells = [cell.strip() for cell in own.split("|")]
    assert (cells[2], cells[4]) == ("37.5", "12 %")


def cloned(folder: Path, *shifts: float, steps: int = 0, success: bool = False) -> str:
    """The line under the score, with clones that return as much as the agent plus `shifts`."""
    results = read_records(folder)[2]
    head = results.headline.model_copy(update={"success_rate": 1.0 if success else None})
    rows = tuple(
        Baseline(
            method="bc",
            trained_with="agentzoo train bc-test",
            dataset_sha256="c" * 64,
            result=head.model_copy(
                update={
                    "training_seed": seed,
                    "weights_sha256": f"{seed:064}",
                    "returns": tuple(value + shift for value in head.returns),
                    "lengths": tuple(length + steps for length in head.lengths),
                }
            ),
        )
        for seed, shift in enumerate(shifts)
    )
    (folder / "results.json").write_text(results.model_copy(update={"headline": head, "yardsticks": rows}).to_json())
    lines = card_text(folder).splitlines()
    return lines[next(i for i, text in enumerate(lines) if "95 % interval in brackets." in text) + 1]


def test_the_line_under_the_score_compares_with_behaviour_cloning(folder: Path) -> None:
    lines = card_text(folder).splitlines()
    at = next(i for i, text in enumerate(lines) if "95 % interval in brackets." in text)
    assert lines[at + 1].startswith("It is not compared with behaviour cloning (`bc`): train `bc` on this dataset,")
    paired = "(paired bootstrap over the same 3 episode seeds; 1 training seed of it, 1 of `bc`)."
    words = "behaviour cloning (`bc`): the difference in return is"
    assert cloned(folder, -2.0) == f"It **beats** {words} 2.00 [2.00, 2.00] {paired}"
    assert cloned(folder, 2.0) == f"It **loses to** {words} -2.00 [-2.00, -2.00] {paired}"
    assert cloned(folder, 0.0) == f"It **ties with** {words} 0.00 [0.00, 0.00] {paired}"
    several = cloned(folder, 1.0, -1.0, 0.0)
    assert several.startswith(f"It **ties with** {words} 0.00 [")
    assert "and over training seeds; 1 training seed of it, 3 of `bc`" in several
    slower = cloned(folder, 0.0, steps=-4, success=True)
    assert slower.startswith(f"It **loses to** {words} 0.00 [0.00, 0.00], in steps 4.00 [4.00, 4.00] ")


def test_a_card_does_not_compare_with_clones_of_other_episodes(folder: Path) -> None:
    words = "It is not compared with behaviour cloning (`bc`), whose runs were measured on other episodes"
    cloned(folder, 0.0)
    results = read_records(folder)[2]
    (clone,) = results.yardsticks
    for options, compared in ((None, True), ({"g": 5.0}, True), ({}, False)):  # None: not recorded
        row = clone.model_copy(update={"result": clone.result.model_copy(update={"env_options": options})})
        head = results.headline.model_copy(update={"env_options": {"g": 5.0}})
        changed = results.model_copy(update={"headline": head, "yardsticks": (row,)})
        (folder / "results.json").write_text(changed.to_json())
        assert (words not in card_text(folder)) is compared
    assert f"{words} or in an environment with other options." in card_text(folder)


def test_baselines_have_rows_in_the_first_table(folder: Path) -> None:
    cloned(folder, -1.0, 1.0)
    edit(folder, "train_config.json", data__dataset_sha256="c" * 64)
    table = card_text(folder).split("## How good is it")[1].split("## Use it")[0]
    assert "| `bc`, behaviour cloning, mean of 2 training seeds | " in table
    assert "over episodes, and over training seeds in a row of their mean." in table
    assert "another collection" not in table
    edit(folder, "train_config.json", data__dataset_sha256="d" * 64)
    table = card_text(folder).split("## How good is it")[1].split("## Use it")[0]
    assert "`bc` learned from another collection of this dataset: the same policies, other episodes." in table


def test_a_clone_is_not_a_baseline_of_itself(folder: Path) -> None:
    cloned(folder, -1.0, 1.0)
    results = read_records(folder)[2]
    mine = results.headline.weights_sha256
    rows = [
        one.model_copy(update={"result": one.result.model_copy(update={"weights_sha256": mine})})
        for one in results.yardsticks[:1]
    ]
    (folder / "results.json").write_text(results.model_copy(update={"yardsticks": tuple(rows)}).to_json())
    assert "| `bc`, behaviour cloning" not in card_text(folder)


def test_a_zoo_that_does_not_know_the_data_leaves_the_rows_of_another_zoo(folder: Path, tmp_path: Path) -> None:
    """A pulled agent's card is written again beside baselines of the user's own datasets."""
    results = read_records(folder)[2]
    row = Baseline(method="bc", trained_with="bc-mine", result=results.headline)
    known = results.model_copy(update={"yardsticks": (row,)})
    (folder / "results.json").write_text(known.to_json())
    write_baselines(tmp_path / "baselines.json", Baselines().with_row("my/own-v0", row))
    write_card(folder, zoo=tmp_path)
    assert read_records(folder)[2].yardsticks == (row,)
    learned = read_records(folder)[1]
    assert learned is not None
    write_baselines(tmp_path / "baselines.json", Baselines(datasets={learned.data.dataset: ()}))
    write_card(folder, zoo=tmp_path)
    assert read_records(folder)[2].yardsticks == ()
