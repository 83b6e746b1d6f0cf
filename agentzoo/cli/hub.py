"""`agentzoo hub ...`: publishing agents and checking published ones. Heavy imports happen inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentzoo.cli.console import console, errors_console, plain, print_json, print_listing, progress_bar, word
from agentzoo.cli.groups import CommandGroup
from agentzoo.cli.import_command import import_command
from agentzoo.cli.options import (
    MAX_EPISODES,
    AgentArg,
    FolderArg,
    JsonOption,
    RevisionOption,
    TokenOption,
    TrustOption,
    TrustOptionsOption,
    ZooOption,
)
from agentzoo.cli.staging import remeasure, seeds, stage
from agentzoo.errors import ConfigError
from agentzoo.store.files import require_writable
from agentzoo.store.named import require_finished, require_folder, require_remote, warn_of_no_zoo
from agentzoo.text import amount, counted

ALL_HELP = (
    "Push every network in the local zoo ($AGENTZOO_ZOO), and a card of the datasets, to --org. Then write the index."
)

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Stage, check, push and pull agents; import, export.")
app.command()(stage)
app.command()(remeasure)
app.command()(seeds)


@app.command()
def push(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="An agent's folder with its records.")] = None,
    repo_id: Annotated[
        str | None, typer.Argument(metavar="[REPO_ID]", help="The repo, your-name/agent; created if it does not exist.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help=ALL_HELP),
    ] = False,
    org: Annotated[str | None, typer.Option("--org", help="The Hub account or organization for --all.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and list what --all would push; send nothing.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Create a private repo; refuse one that is public.")
    ] = False,
    branch: Annotated[str | None, typer.Option("--branch", help="An existing branch. Default: main.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Name for the new commit, e.g. v1.")] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", help="Message of the commit.")] = None,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Open a pull request instead of a commit.")] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an agent's folder and upload it to a Hub in one commit. HF_ENDPOINT names another Hub or a mirror."""
    if everything or org or dry_run:
        if not everything or not org or folder is not None:
            raise ConfigError("the whole zoo is pushed with `agentzoo hub push --all --org NAME`, without a folder.")
        if branch or tag or message or create_pr:
            raise ConfigError("--branch, --tag, --message and --create-pr are for one agent, not for --all.")
        _push_all(org, dry_run, token, private, as_json)
        return
    if folder is None or repo_id is None:
        raise ConfigError("name a folder and a repo, `agentzoo hub push DIR your-name/agent`, or --all --org NAME.")
    require_folder(folder)
    from agentzoo.hub.publish import push as run

    with errors_console.status(f"pushing {plain(folder)}") as status:
        done = run(
            folder,
            repo_id,
            token=token,
            private=private or None,
            branch=branch,
            tag=tag,
            commit_message=message,
            create_pr=create_pr,
            on_progress=lambda what: status.update(plain(what)),
        )
    if as_json:
        print_json(done._asdict())
        return
    if not done.changed:
        what = "pull request was opened" if create_pr else "commit was made"
        tagged = f" {plain(tag)} is a tag of {done.commit}." if tag else ""
        console.print(f"{plain(repo_id)} already holds these files; no {what}.{tagged}")
        return
    console.print(f"{plain(done.url)}\n{counted(len(done.files), 'file')}: {plain(', '.join(done.files))}")
    if done.left_out:
        console.print(f"left out, not part of an agent: {plain(', '.join(done.left_out))}")


def _push_all(org: str, dry_run: bool, token: str | None, private: bool, as_json: bool) -> None:
    from agentzoo.hub.datasets import OURS
    from agentzoo.hub.publish_all import plan, push_all

    warn_of_no_zoo()
    if dry_run:
        with errors_console.status("checking"):
            items = plan(org)
        if as_json:
            print_json([item._asdict() for item in items])
            return
        for item in items:
            console.print(
                f"{plain(item.folder)} -> {plain(item.repo_id)}: {counted(len(item.files), 'file')}, "
                f"{item.bytes / 1e6:.1f} MB"
            )
        console.print(f"a card of the datasets -> the dataset repo {plain(org)}/{OURS}, unless it has another card")
        console.print(
            f"{counted(len(items), 'network')}, {sum(item.bytes for item in items) / 1e6:.1f} MB; nothing was sent."
        )
        return
    with errors_console.status("pushing") as status:
        found = push_all(org, token=token, private=private or None, on_progress=lambda what: status.update(plain(what)))
    if as_json:
        print_json([one._asdict() for one in found])
        return
    for one in found:
        done = "pushed" if one.pushed else "already there"
        console.print(f"{plain(one.repo_id)}@{one.commit[:12]}: {done}, checked")


@app.command()
def pull(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="A Hub repo, or an id in the index.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The new folder. Default: ./<repo name>.")
    ] = None,
    revision: RevisionOption = None,
    token: TokenOption = None,
    local_files_only: Annotated[bool, typer.Option("--offline", help="Read only from the cache.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder.")] = False,
) -> None:
    """Download all files of an agent from a Hub, check them and write them as a folder."""
    require_remote(agent)
    from agentzoo.config import AgentConfig
    from agentzoo.envs.env_options import trust_flags
    from agentzoo.hub.publish import pull as run
    from agentzoo.record import read_record
    from agentzoo.store.files import CONFIG, is_backbone

    with errors_console.status(f"pulling {plain(agent)}"):
        found = run(agent, folder, revision=revision, token=token, local_files_only=local_files_only, force=force)
    if is_backbone(found):
        console.print(f"{plain(found)}: `agentzoo research inspect {word(found)}` shows the heads of this backbone.")
        return
    config = read_record(AgentConfig, found / CONFIG)
    trust = trust_flags(config.env, config.env_options)
    console.print(f"{plain(found)}: `agentzoo hub verify {word(found)}{trust}` checks its files and score.")


@app.command()
def card(
    folder: FolderArg,
    license_id: Annotated[
        str | None,
        typer.Option("--license", help="New license, as the Hub names it: apache-2.0, cc-by-4.0, other."),
    ] = None,
    studies: Annotated[
        list[Path] | None,
        typer.Option("--study", help="A study.json to show instead of the current ones; may be repeated."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Show --study after the current ones.")] = False,
) -> None:
    """Write a folder's README.md again from its records, without measuring."""
    require_folder(folder)
    from agentzoo.hub.card import write_card
    from agentzoo.hub.licenses import require_license
    from agentzoo.hub.studies import show_studies
    from agentzoo.store.exclusive import only_writer
    from agentzoo.store.files import CARD

    if keep and not studies:
        raise ConfigError("--keep goes with --study: it shows new studies after the current ones.")
    if license_id is not None:
        require_license(license_id)  # before the studies change
    if studies:
        show_studies(folder, studies, keep)
    with only_writer(folder):
        write_card(folder, license_id, zoo=folder.resolve().parent)
    console.print(f"wrote {plain(folder / CARD)}")


@app.command()
def verify(
    agent: AgentArg,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes", "-n", min=2, max=MAX_EPISODES, help="Episodes to play. Default: as many as the card states."
        ),
    ] = None,
    n_envs: Annotated[int, typer.Option("--envs", min=1, help="Environments stepped side by side.")] = 20,
    revision: RevisionOption = None,
    token: TokenOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that an agent's files agree, and that its score holds when measured again. If not, the exit status is 1."""
    from agentzoo.hub.verify import verify as run

    with progress_bar(f"verifying {plain(agent)}", episodes) as bar:
        report = run(
            agent,
            episodes,
            revision=revision,
            token=token,
            n_envs=n_envs,
            trust_env_module=trust_env_module,
            on_episode=lambda one: bar(1, f"last return {amount(one.total_reward)}"),
        )
    if as_json:
        print_json({**report.model_dump(), "holds": report.holds})
    else:
        table = Table("check", "holds", "details", title=f"{plain(report.agent_id)}")
        for check in report.checks:
            holds = {None: "-", True: "yes", False: "NO"}[check.holds]
            table.add_row(check.name, holds, plain(check.details))
        print_listing(table)
    if not report.holds:
        raise SystemExit(1)


@app.command()
def baselines(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of finished runs of simpler methods, or staged clones."),
    ],
    zoo: ZooOption = Path("hub_cards"),
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure runs of bc (or `research offline-rl`) and show them on the cards of all agents with the same dataset."""
    for run in runs:
        require_finished(run)
    if not zoo.is_dir():
        raise ConfigError(f"--zoo {zoo} is not a folder; `agentzoo hub stage RUN --zoo {zoo}` makes it.")
    from agentzoo.hub.baseline_rows import add_runs

    with errors_console.status("measuring") as status:
        rows = add_runs(
            runs,
            zoo,
            trust_env_module=trust_env_module,
            on_progress=lambda what: status.update(f"measuring: {plain(what)}"),
        )
    if as_json:
        print_json([row.model_dump() for row in rows])
        return
    table = Table("method", "run", "seed", "score", "return", "episodes")
    for run, row in zip(runs, rows, strict=True):
        one = row.result
        table.add_row(
            row.method,
            plain(run),
            str(one.training_seed),
            one.score_in_words(),
            one.return_in_words(),
            str(one.episodes),
        )
    print_listing(table)


@app.command()
def export(
    agent: AgentArg,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The .onnx file to write.")],
    format_: Annotated[str, typer.Option("--format", help="Format of the file; only onnx.")] = "onnx",
    revision: RevisionOption = None,
    token: TokenOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the network as an ONNX file and compare its actions with the agent's.

    The inputs are windows of the last K steps that the agent reads (`context` in the metadata): raw observations; the
    agent's actions, 0 at the newest step; returns-to-go divided by `rtg_scale`; timesteps from 0; and `valid`. Windows
    are padded on the right with zeros. `input_contract` in the metadata lists shapes and types; where `sampled` is
    true, actions are drawn from the logits. demos/act_with_onnx.py plays an episode with onnxruntime (1.23 or later)
    and numpy.
    """
    from agentzoo.agent import Agent
    from agentzoo.hub.export import export_onnx

    if format_ != "onnx":
        raise ConfigError(f"no format {format_!r}; the only format is onnx.")
    if output.suffix != ".onnx":
        raise ConfigError(f"the file must end in .onnx, got {output}.")
    require_writable(output)
    with errors_console.status("exporting"):
        loaded = Agent.from_pretrained(
            agent, revision=revision, token=token, device="cpu", trust_env_module=trust_env_module
        )
        report = export_onnx(loaded, output)
    if as_json:
        print_json(report.model_dump())
        return
    console.print(
        f"{plain(output)}: {report.bytes:,} bytes; over {counted(report.compared, 'window')} the largest "
        f"difference to PyTorch is {report.largest_difference:.1e}",
    )


app.command("import")(import_command)
