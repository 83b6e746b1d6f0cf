"""A grid's rows, each a recipe and its folder, from a command line or a `grid.toml`."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from agentzoo.config import named_recipe
from agentzoo.data.mapped import map_dataset
from agentzoo.errors import CheckpointError, ConfigError, UnknownNameError, did_you_mean
from agentzoo.recipe import Recipe
from agentzoo.registry import recipe_table
from agentzoo.store.files import read_text, write_atomic
from agentzoo.training.planning import Reader, environment_asked, value_in, with_data_here, with_free_precision
from agentzoo.training.planning import plan as plan_training
from agentzoo.training.settle import claim
from agentzoo.types import Config

PLAN = "grid.json"
MAX_SEEDS = 1_000
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]


class Row(Config):
    """One run of a grid."""

    folder: FolderName  # in the grid's folder
    recipe: Recipe
    priority: int = 0  # higher ones start first


class Plan(Config):
    """`grid.json`: the rows of a grid, so that its status can be read without its command."""

    rows: tuple[Row, ...]
    evaluate: Annotated[int, Field(ge=0)] = 0  # episodes of each finished run

    def in_order(self) -> list[Row]:
        """Rows with the highest priority first, else in the given order."""
        return sorted(self.rows, key=lambda row: -row.priority)


class _FileRow(Config):
    agents: str
    dataset: str | None = None  # ids between commas
    env: str | None = None
    target: str | float | None = None
    seeds: str | None = None
    set: tuple[str, ...] = ()
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,60}$")] | None = None  # part of the folders' names
    priority: int = 0


class _GridFile(Config):
    seeds: str = "0"
    set: tuple[str, ...] = ()
    run: Annotated[tuple[_FileRow, ...], Field(min_length=1)]


class OwnData(NamedTuple):
    """The options of `agentzoo train` beside a recipe: datasets, their environment, the target return."""

    datasets: tuple[str, ...] = ()  # each agent or family trains on each; empty: on its recipe's own
    env: str | None = None
    target: str | None = None  # a number or a rule of `data.targets`
    read: Reader = map_dataset
    trust_env_module: bool = False  # import the module that an environment's id names


def expand(
    agents: str,
    seeds: str,
    settings: Sequence[str] = (),
    name: str | None = None,
    priority: int = 0,
    own: OwnData | None = None,
) -> list[Row]:
    """Rows for all agents, datasets and seeds.

    Args:
        agents: ids with a recipe, patterns of ids (`dm-*`) or `train_config.json` files, separated by commas; with
            datasets also families.
        seeds: training seeds: `0-2`, `0,3,5`, or both.
        settings: `section.field=value` for every row.
        name: part of the folders' names, for rows that differ in their settings.

    Raises:
        UnknownNameError: no such agent, with the nearest id. ConfigError: invalid seeds or settings, or a setting of
            `train.seed` that names another seed.
    """
    numbers = parse_seeds(seeds)
    _require_no_other_seed(settings, numbers, seeds)
    own = own or OwnData()
    rows = []
    for agent, dataset in product(named_agents(agents), own.datasets or (None,)):
        recipe = with_free_precision(_recipe(agent, dataset, settings, own), settings)
        if recipe.base is not None:
            raise ConfigError(
                f"{agent} fine-tunes {recipe.base!r}, but a grid trains new networks only; use `agentzoo finetune`."
            )
        recipe = recipe.pinned()
        stem = f"{recipe.agent_id}-{name}" if name else recipe.agent_id
        for seed in numbers:
            seeded = recipe.override([f"train.seed={seed}"])
            rows.append(Row(folder=f"{stem}-s{seed}", recipe=seeded, priority=priority))
    return rows


def _require_no_other_seed(settings: Sequence[str], numbers: Sequence[int], seeds: str) -> None:
    found = value_in(settings, "train.seed")
    if found is not None and [found] != [str(number) for number in numbers]:
        raise ConfigError(
            f"a setting is train.seed={found}, but a grid takes its seeds from --seeds or from `seeds` in its file: "
            f"{seeds}. Omit the setting."
        )


def _recipe(agent: str, dataset: str | None, settings: Sequence[str], own: OwnData) -> Recipe:
    if dataset is None and own.target is None:
        env = environment_asked(own.env, settings)
        more = () if env is None else (f"eval.env={env}",)
        return with_data_here(named_recipe(agent).override([*more, *settings]))  # in the order of `plan_training`
    return plan_training(
        agent,
        dataset=dataset,
        env=own.env,
        target=own.target,
        settings=settings,
        read=own.read,
        trust_env_module=own.trust_env_module,
    )[0]


def named_agents(text: str) -> list[str]:
    """The agents of a list separated by commas; patterns are replaced by the ids that match.

    Raises:
        UnknownNameError: a pattern matches nothing. ConfigError: the list is empty.
    """
    table = recipe_table()
    found: list[str] = []
    for part in split(text):
        if not any(character in part for character in "*?["):
            found.append(part)
            continue
        matching = fnmatch.filter(table, part)
        if not matching:
            near = did_you_mean(part.strip("*?"), table)
            raise UnknownNameError(f"no recipe matches {part!r}.{near} See `agentzoo list --all`.")
        found += matching
    if not found:
        raise ConfigError(f"no agent is named in {text!r}; `agentzoo list --all` shows all.")
    return found


def parse_seeds(text: str) -> list[int]:
    """`0-2,5` -> 0, 1, 2, 5.

    Raises:
        ConfigError: the text has another form, a range runs backwards, or there are too many seeds.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ConfigError(f"seeds are numbers and ranges like 0-2,5; got {text!r}.")
        if last - first + len(found) >= MAX_SEEDS:
            raise ConfigError(f"seeds {text!r} are more than {MAX_SEEDS}; name fewer.")
        found += range(first, last + 1)
    return found


def read_grid_file(
    path: Path, settings: Sequence[str] = (), read: Reader = map_dataset, trust_env_module: bool = False
) -> list[Row]:
    """Rows of a `grid.toml`.

    `seeds` and `set` at the top apply to all. Each `[[run]]` has `agents`, and may have its own `seeds`, `set`, `name`,
    `priority`, `dataset`, `env` and `target`.

    Args:
        settings: applied after the file's own settings.
        read: the function that reads a dataset.
        trust_env_module: as in `OwnData`.

    Raises:
        CheckpointError: the file cannot be read. ConfigError: its content is not valid. Otherwise as `expand`.
    """
    try:
        tree = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    try:
        text = json.dumps(tree)
    except TypeError as error:  # a date
        raise ConfigError(f"{path} cannot be used: {error}.") from None
    grid = _GridFile.from_json(text, str(path))
    rows: list[Row] = []
    for each in grid.run:
        chosen = (*grid.set, *each.set, *settings)
        target = None if each.target is None else str(each.target)
        own = OwnData(datasets_in(each.dataset), each.env, target, read, trust_env_module)
        rows += expand(each.agents, each.seeds or grid.seeds, chosen, each.name, each.priority, own)
    return rows


def datasets_in(text: str | None) -> tuple[str, ...]:
    """The ids of a list separated by commas; empty for None. ConfigError: a list that names none."""
    found = split(text)
    if text is not None and not found:
        raise ConfigError(f"no dataset is named in {text!r}; omit it to train each recipe on its own data.")
    return found


def split(text: str | None) -> tuple[str, ...]:
    """The parts of a list separated by commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def make_plan(out: Path, rows: Iterable[Row], evaluate: int = 0) -> Plan:
    """The plan of a grid in `out`, after checks of its rows and of existing folders. Nothing is written.

    Raises:
        ConfigError: two rows have the same folder, or there are no rows. TrainingError: a folder holds a run of
            another recipe.
    """
    plan = Plan(rows=tuple(rows), evaluate=evaluate)
    if not plan.rows:
        raise ConfigError("the grid has no run.")
    first: dict[str, Row] = {}
    for row in plan.rows:
        if row.folder in first:
            raise ConfigError(
                f"two runs of the grid have the folder {out / row.folder}. Name each agent and seed once; give "
                "rows of a file that differ in their settings a `name` each."
            )
        first[row.folder] = row
        claim(out / row.folder, row.recipe)
    return plan


def write_plan(out: Path, plan: Plan) -> None:
    """Write the plan into the grid's folder.

    Raises:
        StorageError: it cannot be written.
    """
    write_atomic(out / PLAN, plan.to_json())


def read_plan(out: Path) -> Plan:
    """The plan in a grid's folder.

    Raises:
        ConfigError: there is none, or its content cannot be used. CheckpointError: it cannot be read.
    """
    path = out / PLAN
    if not path.is_file():
        raise ConfigError(f"{out} holds no grid ({PLAN}); `agentzoo grid --out {out}` makes one.")
    try:
        text = path.read_text(encoding="utf-8")  # a large grid is above the limit of `read_text`
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. Repeat the grid's command, which writes it again."
        ) from error
    return Plan.from_json(text, str(path))
