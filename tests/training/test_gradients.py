"""Updates as a CUDA graph: what is refused, when a graph is captured again, and equality where there is a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models.cases import coin_episodes
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import ConfigError
from agentzoo.models.bc import BCConfig, BehaviourCloning
from agentzoo.models.dm import DMConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.base import ModelConfig, SequenceModel
from agentzoo.training.gradients import EagerGradients, GraphGradients
from agentzoo.training.loop import build_model, train
from agentzoo.types import Batch, Losses
from training.cases import recipe


def model_of(config: ModelConfig) -> SequenceModel:
    return build_model(recipe().replace(model=config), coin_episodes())


class NamedLoss(BehaviourCloning):
    """Names its own term as the log names the sum of all terms."""

    def loss(self, batch: Batch) -> Losses:
        (error,) = super().loss(batch).values()
        return {"loss": error, "penalty": error}


def test_a_term_cannot_stand_in_the_place_of_another_column_of_the_log(tmp_path: Path) -> None:
    made = recipe().replace(model=BCConfig(embed_dim=8, n_layers=1))
    start = NamedLoss(made.model, build_model(made, coin_episodes()).io)
    with pytest.raises(ConfigError, match="'bc' names a term or figure 'loss', which is a column of every log"):
        train(made, tmp_path, coin_episodes(), start=start, device="cpu")


def settings(config: ModelConfig, steps: tuple[int, ...], total: int) -> list[object]:
    model, found = model_of(config), []
    for step in steps:
        model.begin_step(step, total)
        found.append(model.loss_settings())
    return found


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_graph_needs_a_cuda_device(device: str | None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--cuda-graph needs one process on a CUDA device"):
        train(recipe(), tmp_path / "run", coin_episodes(), device=device, cuda_graph=True)
    assert not (tmp_path / "run").exists()


def test_a_grid_on_cpus_refuses_a_graph(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["grid", "--agents", "dt-hopper-medium", "--out", str(tmp_path), "--cuda-graph"])
    assert done.exit_code != 0
    assert "--cuda-graph needs a GPU: --gpus-per-run 1" in str(done.exception)


def test_a_loss_that_never_changes_has_one_graph() -> None:
    assert set(settings(DTConfig(embed_dim=8, n_layers=1), (0, 1, 500), 1_000)) == {None}


def test_decision_mamba_has_a_graph_for_each_period() -> None:
    first, same, renewed, kept, last = settings(
        DMConfig(embed_dim=8, n_layers=1, teacher_period=10), (0, 9, 10, 19, 20), 30
    )
    assert first == same
    assert renewed == kept
    assert len({first, renewed, last}) == 3


def test_a_masked_model_has_a_graph_for_each_task() -> None:
    config = UniMaskConfig(embed_dim=8, ffn_dim=8, n_layers=1, n_heads=2, tasks=("rnd", "rc"))
    assert settings(config, (0, 1, 2, 7), 10) == [0, 1, 0, 1]


def test_a_family_that_does_not_say_what_changes_its_loss_is_refused() -> None:
    class Scheduled(BehaviourCloning):
        def begin_step(self, step: int, total: int) -> None:
            self.share = step / total

    made = model_of(BCConfig(embed_dim=8))
    model = Scheduled(made.config, made.io)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"the loss of bc may depend on the update.*train without --cuda-graph"):
        GraphGradients(EagerGradients(model, None, None, None))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "config", [DTConfig(embed_dim=16, dropout=0.0), DMConfig(embed_dim=16, n_layers=1, teacher_period=10)]
)
def test_a_graph_gives_the_same_weights(config: ModelConfig, tmp_path: Path) -> None:
    made = recipe(steps=40).replace(model=config)
    one_by_one = train(made, tmp_path / "eager", coin_episodes(), device="cuda").state_dict()
    replayed = train(made, tmp_path / "graph", coin_episodes(), device="cuda", cuda_graph=True).state_dict()
    assert all(torch.equal(one_by_one[name], replayed[name]) for name in one_by_one)
