"""The mean of the weights that a run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import make_agent
from models.cases import coin_episodes

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.store.tensors import read_tensors, save_tensors
from agentzoo.training.average import MeanWeights
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from agentzoo.training.run import BEST
from agentzoo.training.state import CHECKPOINT, load_model
from training.cases import Stopped, recipe, repeatable, run, stop_at


def averaged(share: float = 0.5, **fields: object) -> Recipe:
    return recipe(average_weights=share, **fields)


@pytest.mark.parametrize(
    ("share", "means"),
    [
        (1.0, [6.0, 3.0, 4.0]),  # the mean of all
        (0.5, [6.0, 2.0, 4.0]),  # moved by 1, 2/3, 1/2
        (0.25, [6.0, 1.2, 4.4]),  # by 1, 4/5, 2/3
    ],
)
def test_the_mean_is_the_one_worked_out_by_hand(share: float, means: list[float]) -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    mean = MeanWeights(module, share)
    for n, (value, expected) in enumerate(zip([6.0, 0.0, 6.0], means, strict=True)):
        with torch.no_grad():
            module.weight.fill_(value)
        mean.update(n)
        assert mean.state()["weight"].item() == pytest.approx(expected)
        with mean.applied():
            assert module.weight.item() == pytest.approx(expected)
        assert module.weight.item() == value


def test_an_error_inside_gives_the_network_its_own_weights_back() -> None:
    module = torch.nn.Linear(1, 1)
    own = module.weight.item()
    mean = MeanWeights(module, 1.0)
    mean.load({name: value + 1 for name, value in mean.state().items()})
    with pytest.raises(Stopped), mean.applied():
        raise Stopped
    assert module.weight.item() == own


def test_a_trained_agent_has_the_mean_of_its_weights(tmp_path: Path) -> None:
    """Against a mean that a hook takes from the weights after each update."""
    seen: list[dict[str, torch.Tensor]] = []
    made = averaged(1.0, steps=4, warmup_steps=0, checkpoint_every=1)

    def look(_: int) -> None:
        weights = read_tensors(tmp_path / CHECKPOINT)[0]
        seen.append({name: value for name, value in weights.items() if name.startswith("model/")})

    found = train(made, tmp_path, coin_episodes(), hooks=Hooks(on_step=look), device="cpu").state_dict()
    stored = read_tensors(tmp_path / "model.safetensors")[0]
    for name, value in found.items():
        mean = torch.stack([each[f"model/{name}"] for each in seen]).mean(0)
        torch.testing.assert_close(value, mean)
        assert torch.equal(stored[name], value)
    assert not torch.equal(found["embed_obs.weight"], seen[-1]["model/embed_obs.weight"])


def test_the_mean_does_not_change_what_is_trained(tmp_path: Path) -> None:
    run(tmp_path / "mean", averaged())
    run(tmp_path / "end", recipe())
    mean, end = (read_tensors(tmp_path / name / CHECKPOINT)[0] for name in ("mean", "end"))
    assert {name for name in mean if name not in end} == {
        f"mean/{name}" for name, _ in make_agent(model=recipe().model).model.named_parameters()
    }
    assert all(torch.equal(mean[name], value) for name, value in end.items())
    assert repeatable(tmp_path / "mean") == repeatable(tmp_path / "end")


@pytest.mark.parametrize("stop", [10, 17, 30])
def test_a_run_stopped_and_resumed_has_the_mean_of_the_uninterrupted_one(stop: int, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", averaged())
    with pytest.raises(Stopped):
        run(tmp_path / "cut", averaged(), stop_at(stop))
    resumed = run(tmp_path / "cut", averaged())
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_short_evaluations_and_errors_are_of_the_mean(tmp_path: Path) -> None:
    """The last evaluation sees the weights that the run ends with, and the best file holds those of its evaluation."""
    seen: list[dict[str, torch.Tensor]] = []

    def evaluate(model: SequenceModel) -> Evaluation:
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return Evaluation(-float(len(seen)), None)  # the first is the best

    made = averaged(steps=20)
    made = made.replace(eval=made.eval.model_copy(update={"every": 10}))
    found = run(tmp_path, made, Hooks(evaluate=evaluate))
    best = read_tensors(tmp_path / BEST)[0]
    for name, value in found.items():
        assert torch.equal(seen[1][name], value)
        assert torch.equal(best[name], seen[0][name])
    run(tmp_path / "end", recipe(steps=20))
    assert read_log(tmp_path)[-1]["error_first"] != read_log(tmp_path / "end")[-1]["error_first"]


def test_the_network_of_a_checkpoint_is_the_mean(tmp_path: Path) -> None:
    made = averaged()
    found = run(tmp_path, made)
    model = train(made, tmp_path / "other", coin_episodes(), device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    load_model(tmp_path, model)
    assert all(torch.equal(value, found[name]) for name, value in model.state_dict().items())


def test_a_checkpoint_without_its_mean_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, averaged(), stop_at(12))
    tensors, metadata = read_tensors(tmp_path / CHECKPOINT)
    kept = {name: value for name, value in tensors.items() if not name.startswith("mean/")}
    save_tensors(tmp_path / CHECKPOINT, kept, {"progress": metadata["progress"]})
    with pytest.raises(CheckpointError, match=r"does not fit this run: .*embed_"):
        run(tmp_path, averaged())


def test_a_recipe_without_a_mean_is_written_as_before() -> None:
    assert "average_weights" not in recipe().to_json()
    again = Recipe.from_json(averaged(0.25).to_json(), "a recipe")
    assert again.train.average_weights == 0.25
    with pytest.raises(ConfigError, match=r"train\.average_weights"):
        recipe().override(["train.average_weights=1.5"])
