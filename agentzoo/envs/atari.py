"""Atari games as networks read them: an action lasts four frames, a stack holds the newest four grey frames of 84x84.

It is ale-py's game in gymnasium's `AtariPreprocessing` and `FrameStackObservation`. An episode is a whole game with all
its lives. Before the first frame a stack holds zeros, as in DQN's replay data. Rewards are the game's, unclipped.

Source: Mnih et al. 2015, doi:10.1038/nature14236; Machado et al. 2018, arXiv:1709.06009 for sticky actions.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

STACK, SIDE, SKIP, MAX_NOOPS = 4, 84, 4, 30
FRAMES_PER_SECOND = 60  # of the console


def make_game(
    game: str,
    repeat_action_probability: float = 0.0,
    full_action_space: bool = False,
    terminal_on_life_loss: bool = False,
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """The game as an environment of (4, 84, 84) uint8 observations and Discrete actions.

    Args:
        game: its name in ale-py, for example "Pong".
        repeat_action_probability: probability of repeating the last action instead (sticky actions). Usual values are
            0, as in DQN's data, and 0.25.
        full_action_space: all 18 actions of the console, not only those that the game reads.
        terminal_on_life_loss: an episode is one life.
        render_mode: as in Gymnasium.

    Raises:
        ImportError, gymnasium.error.DependencyNotInstalled: ale-py or OpenCV is not installed.
    """
    import ale_py

    gym.register_envs(ale_py)
    env: gym.Env[Any, Any] = gym.make(
        f"ALE/{game}-v5",
        frameskip=1,  # AtariPreprocessing skips
        repeat_action_probability=repeat_action_probability,
        full_action_space=full_action_space,
        render_mode=render_mode,
        disable_env_checker=True,
    ).unwrapped
    env = gym.wrappers.AtariPreprocessing(
        env,
        noop_max=MAX_NOOPS,
        frame_skip=SKIP,
        screen_size=SIDE,
        terminal_on_life_loss=terminal_on_life_loss,
    )
    stacked: gym.Env[Any, Any] = gym.wrappers.FrameStackObservation(env, STACK, padding_type="zero")
    stacked.metadata = {**stacked.metadata, "render_fps": FRAMES_PER_SECOND // SKIP}  # a picture for each step
    return stacked
