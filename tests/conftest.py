"""Agents and environments small enough to build in a moment; everything real, nothing trained."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
import typer.testing

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.spaces import action_spec, observation_spec
from agentzoo.models.bc import BCConfig
from agentzoo.models.bc_pixel import BCPixelConfig
from agentzoo.models.chibit_pixel import ChibiTPixelConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.dt_pixel import DTPixelConfig
from agentzoo.models.smollm_dt import SmolLMDTConfig
from agentzoo.models.smollm_dtma import SmolLMDTMAConfig
from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.registry import get_family
from agentzoo.types import Batch, IOSpec

torch.set_num_threads(1)
os.environ.pop("AGENTZOO_CACHE", None)  # tests move the cache with XDG_CACHE_HOME, too
os.environ.pop("COLUMNS", None)  # tests set the width of the terminal; rich keeps one that it finds when imported
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C, its children too

LLAMA = {"embed_dim": 24, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "inner_dim": 40}
PIXELS: dict[str, Any] = {"embed_dim": 16, "convolutions": ((4, 3, 2), (8, 2, 1))}
SMALL = {
    "dt": DTConfig(embed_dim=16, n_layers=2, n_heads=2),
    "dt-pixel": DTPixelConfig(**PIXELS, n_layers=2, n_heads=2),
    "chibit-pixel": ChibiTPixelConfig(**PIXELS, n_layers=2, n_heads=2),
    "bc-pixel": BCPixelConfig(**PIXELS, hidden_dim=16),
    "bc": BCConfig(embed_dim=16),
    "smollm-dt": SmolLMDTConfig(**LLAMA),
    "smollm-dtma": SmolLMDTMAConfig(**LLAMA),
}


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: many tests wait for processes, servers or a browser."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the Hub run on request alone, those that need a GPU where there is one; slow files come first."""
    absent = {
        "network": None if os.environ.get("AGENTZOO_TEST_NETWORK") else "set AGENTZOO_TEST_NETWORK=1 to use the Hub",
        "gpu": None if torch.cuda.is_available() else "no CUDA device",
    }
    for item in items:
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # long files first: the last one keeps a single worker busy


class CountingEnv(gym.Env[Any, Any]):
    """Rewards 1, 2, 3, ... and observations that say the step; ends after `length` steps (longer for other seeds).

    An image has two planes of 9x11 pixels: the first says the step, the second the seed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  gymnasium's own form

    def __init__(
        self,
        length: int = 7,
        discrete: bool = False,
        dict_obs: bool = False,
        image: bool = False,
        render_mode: str | None = None,
    ) -> None:
        box: gym.Space[Any] = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        if image:
            box = gym.spaces.Box(0, 255, (2, 9, 11), np.uint8)
        parts = {"a": box} if image else {"a": box, "b": box}
        self.observation_space: gym.Space[Any] = gym.spaces.Dict(parts) if dict_obs else box
        self.image = image
        self.action_space: gym.Space[Any] = (
            gym.spaces.Discrete(4, start=2) if discrete else gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
        )
        self.length, self.dict_obs, self.render_mode = length, dict_obs, render_mode
        self.actions: list[Any] = []

    def _observe(self) -> Any:
        if self.image:
            pixels = np.zeros((2, 9, 11), dtype=np.uint8)
            pixels[0, :, : self.now + 1], pixels[1] = 200, round(100 + 100 * self.tilt)
            return {"a": pixels} if self.dict_obs else pixels
        values = np.array([self.now, self.now**2 / 10, self.tilt], dtype=np.float32)
        return {"a": values, "b": -values} if self.dict_obs else values

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.tilt = float(self.np_random.uniform(-1, 1))
        self.end = self.length + int(self.np_random.integers(3))
        self.now = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.now += 1
        return self._observe(), float(self.now), self.now >= self.end, False, {}

    def render(self) -> Any:
        frame = np.zeros((48, 64, 3), dtype=np.uint8)
        frame[:, : 8 * self.now] = (200, 90, 30)
        return frame


class ClosingEnv(CountingEnv):
    """Records which of its kind are open."""

    open: ClassVar[set[int]] = set()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.open.add(id(self))

    def close(self) -> None:
        self.open.discard(id(self))


def doubled(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment inside a wrapper that doubles its rewards."""
    return gym.wrappers.TransformReward(env, lambda reward: 2 * float(reward))


gym.register("tests/Closing-v0", entry_point="conftest:ClosingEnv")  # Minari stores strings, not classes

for _name, _kwargs in {
    "tests/Counting-v0": {},
    "tests/CountingDiscrete-v0": {"discrete": True},
    "tests/CountingDict-v0": {"dict_obs": True},
    "tests/CountingImage-v0": {"image": True},
    "tests/CountingImageDiscrete-v0": {"image": True, "discrete": True},
    "tests/CountingImageDict-v0": {"image": True, "dict_obs": True},
}.items():
    gym.register(_name, entry_point=CountingEnv, kwargs=_kwargs)


def env_of(family: str, kind: str = "") -> str:
    """An environment that this family can observe: kind "", "Discrete" (actions) or "Dict" (observations)."""
    return f"tests/Counting{'Image' if get_family(family).model.takes_images else ''}{kind}-v0"


def random_observations(io: IOSpec, lead: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Observations of shape (*lead, S) or (*lead, C, H, W), as an environment gives them."""
    rng = np.random.default_rng(seed)
    if io.observation.image is not None:
        return rng.integers(256, size=(*lead, *io.observation.row), dtype=np.uint8)
    return rng.normal(size=(*lead, *io.observation.row)).astype(np.float32)


def config_of(family: str) -> ModelConfig:
    """A small config of this family, where one is listed; else its default."""
    return SMALL[family] if family in SMALL else get_family(family).config(family=family)


def io_of(env: gym.Env[Any, Any], context: int) -> IOSpec:
    return IOSpec(
        observation=observation_spec(env.observation_space), action=action_spec(env.action_space), context=context
    )


def make_agent(env_id: str | None = None, model: ModelConfig | None = None, context: int = 4, **eval_: Any) -> Agent:
    """An untrained agent for `env_id` whose actions depend on everything it is shown."""
    config = model or SMALL["dt"]
    env_id = env_id or env_of(config.family)
    env = gym.make(env_id)
    io = io_of(env, context)
    env.close()
    torch.manual_seed(0)
    network = get_family(config.family).model(config, io)
    with torch.no_grad():  # fresh weights are so small that every action would be nearly the same
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2 and "timestep" not in name:
                parameter.mul_(4.0)
    recipe = Recipe(
        agent_id="dt-test",
        model=config,
        data=DataConfig(dataset="tests/none-v0", context=context, rtg_scale=10.0),
        train=TrainConfig(steps=10),
        eval=EvalConfig(env=env_id, **{"target_return": 50.0, "episodes": 3, **eval_}),
    )
    return Agent(network, AgentConfig.of(recipe, io), recipe)


def change_in_place(model: torch.nn.Module) -> None:
    """Other weights in the same memory."""
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)


def random_batch(io: IOSpec, lengths: list[int], seed: int = 0) -> Batch:
    """Windows with `lengths` real steps; padding holds zeros, as samplers make it."""
    rng = torch.Generator().manual_seed(seed)
    b, k = len(lengths), io.context
    valid = torch.arange(k)[None] < torch.tensor(lengths)[:, None]
    if io.action.kind == "discrete":
        actions = torch.randint(io.action.size, (b, k), generator=rng) * valid
    else:
        actions = (torch.rand(b, k, io.action.size, generator=rng) * 2 - 1) * valid[..., None]
    if io.observation.image is not None:
        pixels = torch.randint(256, (b, k, *io.observation.row), generator=rng, dtype=torch.uint8)
        observations = pixels * valid[..., None, None, None]
    else:
        observations = torch.randn(b, k, io.observation.size, generator=rng) * valid[..., None]
    return Batch(
        observations=observations,
        actions=actions,
        returns_to_go=torch.rand(b, k, generator=rng) * valid,
        timesteps=(torch.randint(50, (b, 1), generator=rng) + torch.arange(k)) * valid,
        valid=valid,
    )


ASSETS = Path(__file__).resolve().parent / "assets" / "minari"


@pytest.fixture(scope="session")
def one_table_of_operators() -> Iterator[None]:
    """torch.onnx builds its table of operators for every export: a third of the time that a small network takes."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_tree_of_commands() -> Iterator[None]:
    """Typer builds the tree of all commands for every call of a test, which takes longer than most calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture
def tiny_hopper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Id of a 20-episode Hopper dataset in a copy of the shipped Minari folder, which the test may write to."""
    root = tmp_path / "minari"
    shutil.copytree(ASSETS, root)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return "zoo/hopper/tiny-v0"


class Payload:
    """Unpickled, it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """This process cannot write a file of more bytes: what a full disk does, without one."""
    import resource  # not on Windows

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def newest_steps(batch: Batch, steps: int) -> Batch:
    """The same windows without what lies further back than their newest `steps` steps."""
    lengths = batch.valid.sum(1)
    kept = torch.arange(min(steps, batch.shape[1]))
    places = (lengths - steps).clamp(min=0)[:, None] + kept  # (B, steps)
    rows = torch.arange(len(lengths))[:, None]
    return batch.map(lambda part: part[rows, places])


@pytest.fixture(scope="session")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny language model: its zoo, and the text it was trained on. Tests must not write to it."""
    from models.language_cases import language_model

    return language_model(tmp_path_factory.mktemp("language"))


@pytest.fixture
def zoo(lm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`lm`, as this machine's zoo and text."""
    from agentzoo.nn.language.cotraining import TEXT_VARIABLE

    monkeypatch.setenv("AGENTZOO_ZOO", str(lm / "zoo"))
    monkeypatch.setenv(TEXT_VARIABLE, str(lm / "text"))
    return lm
