"""`config.json`: everything needed to rebuild an agent except the weights, checked before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from agentzoo.env_ids import same_environment
from agentzoo.errors import ConfigError
from agentzoo.recipe import AgentId, AnyModel, EnvId, History, Option, Positive, Recipe, load_recipe
from agentzoo.record import read_record
from agentzoo.store.files import RECIPE
from agentzoo.types import Config, Digest, IOSpec, TargetReturn

License = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]{0,63}$")]  # as the Hub names them: mit, apache-2.0, other


class AgentConfig(Config):
    """Everything but the weights."""

    format: Literal[1] = 1
    agent_id: AgentId
    model: AnyModel
    io: IOSpec
    rtg_scale: Positive
    rewards: Literal["dense", "delayed"]
    env: EnvId | None  # Gymnasium id the agent was made for
    env_options: dict[Option, bool | int | float | str] = Field(default_factory=dict)  # keyword arguments of `gym.make`
    target_return: TargetReturn
    history: History = None
    weights_sha256: Digest | None = None  # of model.safetensors
    license: License = "mit"

    def options_in(self, env_id: str | None) -> dict[str, bool | int | float | str]:
        """The options to create `env_id` with; empty if that is not the agent's environment. None is the agent's id."""
        own = env_id is None or (self.env is not None and same_environment(env_id, self.env))
        return dict(self.env_options) if own else {}

    @classmethod
    def of(cls, recipe: Recipe, io: IOSpec) -> AgentConfig:
        """The config of an agent trained by `recipe`."""
        return cls(
            agent_id=recipe.agent_id,
            model=recipe.model,
            io=io,
            rtg_scale=recipe.data.rtg_scale,
            rewards=recipe.data.rewards,
            env=recipe.eval.env,
            env_options=recipe.eval.env_options,
            target_return=recipe.eval.target_return,
            history=recipe.eval.history,
            license=recipe.model.weights_license(),
        )


def named_recipe(source: str) -> Recipe:
    """A recipe by agent id, by path to a `train_config.json`, or by the folder of a run or an agent.

    Raises:
        UnknownNameError: no such id, with the nearest one. For a file, the errors of `read_recipe`.
    """
    if (Path(source) / RECIPE).is_file():
        return read_recipe(Path(source) / RECIPE)
    return read_recipe(Path(source)) if source.endswith(".json") else load_recipe(source)


def read_recipe(path: Path) -> Recipe:
    """The recipe in a `train_config.json`.

    Raises:
        ConfigError: the file does not exist or holds no recipe. CheckpointError: it cannot be read as a small text
            file, or belongs to a backbone.
    """
    if not path.exists():
        raise ConfigError(
            f"no recipe file {path}. Pass the {RECIPE} of an agent or a run, or an agent id from `agentzoo list --all`."
        )
    return read_record(Recipe, path)
