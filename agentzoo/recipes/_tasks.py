"""Datasets and evaluation settings that several families share, so that they differ in nothing else."""

from __future__ import annotations

from agentzoo.recipe import DataConfig, EvalConfig

# Environment, target return (the larger of the two published ones, spec DT10) and return-to-go scale.
LOCOMOTION = {
    "hopper": ("Hopper-v5", 3600.0),
    "halfcheetah": ("HalfCheetah-v5", 12000.0),
    "walker2d": ("Walker2d-v5", 5000.0),
}


def locomotion(env: str, kind: str) -> tuple[DataConfig, EvalConfig]:
    """Data and evaluation of e.g. ("hopper", "medium-replay")."""
    env_id, target = LOCOMOTION[env]
    data = DataConfig(dataset=f"zoo/{env}/{kind}-v0", context=20, rtg_scale=1000.0)
    return data, EvalConfig(env=env_id, target_return=target)
