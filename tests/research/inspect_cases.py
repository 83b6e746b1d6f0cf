"""Small networks to look into, and the command that does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import make_agent, random_batch
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.models.decision_gpt import DecisionGPTConfig
from agentzoo.models.dm import DMConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.research.analysis.inspection import Options
from agentzoo.types import Batch

SIZES: dict[str, Any] = {"embed_dim": 16, "n_layers": 2, "n_heads": 4}

CAUSAL = {
    "dt": DTConfig(**SIZES),
    "gpt2": GPT2DTConfig(**SIZES),
    "lora": GPT2DTConfig(**SIZES, adaptation="lora"),
    "gptj": GPT2DTConfig(**SIZES, architecture="gptj", rotary_dim=4),
    "gated": DTMAConfig(**SIZES),
    "decision-gpt": DecisionGPTConfig(embed_dim=16, n_layers=2, n_heads=4),
}

MASKED = UniMaskConfig(embed_dim=16, n_layers=2, n_heads=4, ffn_dim=16)


def windows_of(agent: Agent, lengths: list[int] | None = None) -> Batch:
    return random_batch(agent.config.io, lengths or [4, 3, 4, 1])


FEW = Options(episodes=1)

NETWORKS: dict[str, tuple[Any, set[str]]] = {
    "dt": (DTConfig(embed_dim=16, n_layers=2, n_heads=2), {"markov", "importance", "maps"}),
    "gated": (DTMAConfig(embed_dim=16, n_layers=2), {"markov", "importance", "gates", "maps"}),
    "mamba": (DMConfig(embed_dim=16, n_layers=2, state_size=4), {"memory"}),
    "masked": (UniMaskConfig(embed_dim=16, n_heads=4, ffn_dim=16), {"importance", "maps"}),
}


def agent_in(folder: Path, name: str = "gated") -> Path:
    agent = make_agent(model=NETWORKS[name][0])
    return agent.save_pretrained(folder / name)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["research", "inspect", *map(str, arguments)])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout
