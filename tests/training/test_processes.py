"""One run over several processes: the global batch, one writer, and going on."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from data.cases import episodes_of
from models.acting_cases import small_config

from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.masked_model import MaskedModel
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.registry import families
from agentzoo.store.files import RECIPE
from agentzoo.store.tensors import read_tensors
from agentzoo.training.log import read_log
from agentzoo.training.loop import build_model
from agentzoo.training.machine import check_machine, device_line
from agentzoo.training.processes import Share, Weights, check_launch, weighted
from agentzoo.training.state import checksum
from training.cases import recipe, repeatable, run, train_shared

TESTS = Path(__file__).parent.parent
SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import torch
from agentzoo.training.hooks import Hooks
from training.cases import train_shared

sys.setswitchinterval(10)  # a thread that is still at work when Python ends aborts the process
torch.set_num_threads(1)
folder, killed = Path(sys.argv[2]), int(sys.argv[3])

def kill(step):
    if step == killed:
        os._exit(9)

train_shared(folder, Hooks(on_step=kill))
train_shared(folder / "again")
"""


def start_two(folder: Path, killed: int = 0) -> None:
    """Train in two processes, as a user starts them."""
    script = folder.parent / "script.py"
    script.write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    own = [str(script), str(TESTS), str(folder), str(killed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, *own], capture_output=True, text=True, env=environment, timeout=300)
    assert bool(done.returncode) == bool(killed), done.stderr


def drawn_by_each_process(model: type[SequenceModel]) -> bool:
    """Masks are random, and images do not fit the data here."""
    return model.takes_images or issubclass(model, MaskedModel)


def losses(folder: Path) -> list[float]:
    return [float(row["loss"]) for row in read_log(folder)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors")[0]


@pytest.mark.slow
def test_two_processes_are_one_with_the_same_batch_are_killed_and_go_on_as_two_or_as_one(tmp_path: Path) -> None:
    one, two, cut, changed = (tmp_path / name for name in ("one", "two", "cut", "changed"))
    train_shared(one)
    start_two(two)
    start_two(cut, killed=12)
    shutil.copytree(cut, changed)
    start_two(cut)
    with pytest.warns(UserWarning, match="was written by 2 processes, but this run has 1"):
        train_shared(changed)
    assert len(losses(two)) == 20
    assert losses(two / "again") == losses(two)  # a second training in the same processes
    for folder in (two, changed):
        assert losses(folder) == pytest.approx(losses(one), abs=1e-5)
        assert all(torch.allclose(value, weights(folder)[name], atol=1e-5) for name, value in weights(one).items())
    assert losses(cut) == losses(two)
    assert all(torch.equal(value, weights(cut)[name]) for name, value in weights(two).items())
    (only,) = read_record(Recipe, two / RECIPE).ran
    assert (only.processes, only.precision, only.threads, len(only.devices)) == (2, "fp32", 1, 1)
    ran = read_record(Recipe, changed / RECIPE).ran
    assert [(each.from_update, each.processes) for each in ran] == [(0, 2), (10, 1)]


def test_shares_are_the_global_batch_and_weigh_their_steps() -> None:
    """Three windows of an episode of three steps and one of one step: 2 of 4 windows, some valid steps each."""
    sampler = WindowSampler(episodes_of([1, 2, 3], [4]), 3, 1.0)

    def drawn(share: Share) -> tuple[torch.Tensor, Weights | None]:
        batch, weights = share.sample(sampler, torch.Generator().manual_seed(1))
        return batch.valid, weights

    whole, none = drawn(Share(4))
    assert none is None
    (first, one), (second, other) = drawn(Share(4, 0, 2)), drawn(Share(4, 1, 2))
    assert torch.equal(torch.cat((first, second)), whole)
    assert one is not None
    assert other is not None
    pairs = [float((valid[:, :-1] & valid[:, 1:]).sum()) for valid in (first, whole)]
    assert one == {
        "windows": 1.0,
        "steps": pytest.approx(2 * float(first.sum() / whole.sum())),
        "pairs": pytest.approx(2 * pairs[0] / pairs[1]),
    }
    assert all(one[name] + other[name] == pytest.approx(2.0) for name in one)


@pytest.mark.parametrize("family", [name for name, one in families().items() if not drawn_by_each_process(one.model)])
def test_gradients_of_two_shares_are_those_of_the_global_batch(family: str) -> None:
    """Windows at the ends of episodes are shorter, so shares have different numbers of steps."""
    data = episodes_of([1, 2, 3, 4, 5], [6], [7, 8], [1, 0, 2])
    settings = small_config(family)
    changes: dict[str, object] = {name: 0.0 for name in type(settings).model_fields if name.endswith("dropout")}
    if family == "gpt2-p":
        changes["markov_heads"] = (0,)
    settings = settings.model_copy(update=changes)
    model = build_model(recipe().replace(model=settings).override(["data.context=3"]), data)
    model.begin_training(fresh=True)
    model.train()
    model.begin_step(0, 10)
    sampler = WindowSampler(data, 3, 1.0)

    def gradients(share: Share) -> dict[str, torch.Tensor]:
        batch, weights = share.sample(sampler, torch.Generator().manual_seed(1))
        model.zero_grad()
        torch.stack(list(weighted(model.loss(batch), weights, model.averages).values())).sum().backward()
        return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}

    whole, first, second = (gradients(Share(16, *own)) for own in ((0, 1), (0, 2), (1, 2)))
    assert whole
    for name, value in whole.items():
        torch.testing.assert_close((first[name] + second[name]) / 2, value, rtol=1e-4, atol=1e-6)


class Two:
    """What `Share.of` reads of accelerate."""

    num_processes, process_index = 2, 1


def test_a_batch_that_two_processes_cannot_share_is_refused() -> None:
    assert Share.of(64, Two()) == Share(64, 1, 2)
    with pytest.raises(ConfigError, match=r"batch_size=63 .* 2 processes cannot .* Set train.batch_size to 62 or 64"):
        Share.of(63, Two())
    with pytest.raises(ConfigError, match=r"Set train\.batch_size to 2,"):
        Share.of(1, Two())


def test_accelerate_launch_on_a_cpu_says_how_to_start_several() -> None:
    script = "from agentzoo.training.processes import check_launch; check_launch()"
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--no_python"]
    done = subprocess.run([*launcher, sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode
    assert "`torchrun --nproc_per_node N -m agentzoo train ...`" in done.stderr
    check_launch({"ACCELERATE_MIXED_PRECISION": "no"})  # one process was asked for
    check_launch({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"})


def test_a_machine_with_several_gpus_says_which_it_uses_and_how_to_use_all() -> None:
    gpus = ["H200", "H200"]
    assert device_line(torch.device("cuda:1"), gpus, 1) == (
        "trains on cuda:1 (H200), one of 2 GPUs; all of them: torchrun --nproc_per_node 2 -m agentzoo train ..."
    )
    assert device_line(torch.device("cuda"), gpus[:1], 1) == ""
    assert device_line(torch.device("cpu"), gpus, 1) == ""
    assert device_line(torch.device("cpu"), [], 2) == "2 processes share each batch, on cpu"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cuda:x", "Known are cpu, cuda, cuda:N and mps"),
        ("cpu:0", "Known are"),
        ("gpu", "no device 'gpu'"),
        ("", "no device ''"),
    ],
)
def test_devices_that_are_none_are_refused(device: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_machine(device, ())


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cuda:5", "PyTorch finds 2 CUDA devices, from cuda:0"),
        ("cuda:0", "is one GPU for 4 processes; --device cuda gives each its own"),
        (None, "4 processes share 2 GPUs here; start one process per GPU"),
    ],
)
def test_processes_and_gpus_must_fit(device: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=said):
        check_machine(device, ())


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is an Apple GPU")
def test_an_apple_gpu_where_there_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="finds no Apple GPU"):
        check_machine("mps", ())


def test_a_checksum_sees_every_bit_name_shape_and_word() -> None:
    tensors = {"a": torch.zeros(2, 3), "b": torch.ones(1, dtype=torch.int64)}
    found = {
        checksum(tensors, "x"),
        checksum(tensors, "y"),
        checksum({**tensors, "a": torch.zeros(3, 2)}, "x"),
        checksum({**tensors, "a": torch.full((2, 3), -0.0)}, "x"),
        checksum({"c": tensors["a"], "b": tensors["b"]}, "x"),
    }
    assert len(found) == 5
    assert checksum(dict(reversed(tensors.items())), "x") in found


TWO_PROCESSES = """
import os, sys
rank, port, folder, processes, steps = (int(n) if n.isdigit() else n for n in sys.argv[1:])
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "ACCELERATE_USE_CPU": "true",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
import torch
from pathlib import Path
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.store.tensors import save_tensors
from agentzoo.nn.language.cotraining import Language
from agentzoo.training.hooks import Hooks
from agentzoo.training.loop import train
from models.cases import coin_episodes
from training.cases import recipe

torch.set_num_threads(1)

def speak(self, fresh):
    table = torch.Generator().manual_seed(0)
    words, places = (torch.randn(rows, 16, generator=table) for rows in (50, 16))
    self.language = Language(None, words, places, torch.randint(50, (4, 9), generator=table))

LanguageDT.begin_training = speak  # as a backbone with places of its own would have it
model = GPT2DTConfig(embed_dim=16, n_layers=1, backbone="x", backbone_sha256="0" * 64, lm_weight=0.2,
                     lm_decay_steps=3, lm_chunk=9)

def stop(step):
    if step == steps:
        raise KeyboardInterrupt

made = recipe(steps=10, checkpoint_every=5).replace(model=model)
trained = train(made, Path(folder), coin_episodes(), hooks=Hooks(on_step=stop), device="cpu")
save_tensors(Path(folder) / f"rank-{rank}", trained.state_dict())
"""


def test_a_loop_that_stopped_between_accumulated_steps_holds_no_later_training_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transformers Trainer in the same notebook leaves accelerate's states so, which belong to the process."""
    alone = run(tmp_path / "alone", recipe(10))
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    other = Accelerator(cpu=True, gradient_accumulation_steps=4)
    net = torch.nn.Linear(2, 1)
    net, optimizer = other.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
    with other.accumulate(net):
        other.backward(net(torch.ones(1, 2)).sum())
        optimizer.step()
    assert not other.sync_gradients
    after = run(tmp_path / "after", recipe(10))
    assert repeatable(tmp_path / "after") == repeatable(tmp_path / "alone")
    assert all(torch.equal(after[name], value) for name, value in alone.items())


@pytest.mark.slow
def test_two_processes_train_one_network_and_go_on_as_two_alone(tmp_path: Path) -> None:
    """Beyond the update at which the language loss has faded: every parameter must still take part."""

    def run_processes(folder: str, processes: int, steps: int) -> list[int]:
        """The exit codes. A port that another program took meanwhile is tried once more with another one."""
        codes, said = attempt(folder, processes, steps)
        if "EADDRINUSE" in said or "address already in use" in said.lower():
            codes, said = attempt(folder, processes, steps)
        assert steps < 10 or not any(codes), said  # those that are stopped on the way end with an error
        return codes

    def attempt(folder: str, processes: int, steps: int) -> tuple[list[int], str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        numbers = [str(port), str(tmp_path / folder), str(processes), str(steps)]
        started = [
            subprocess.Popen(
                [sys.executable, "-c", TWO_PROCESSES, str(rank), *numbers], env=environment, stderr=subprocess.PIPE
            )
            for rank in range(processes)
        ]
        try:
            said = "".join(one.communicate(timeout=120)[1].decode() for one in started)
            return [one.returncode for one in started], said
        finally:
            for one in started:
                one.kill()

    def weights(folder: str, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
        return read_tensors(tmp_path / folder / file)[0]

    def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(one[name], other[name]) for name in one)

    run_processes("whole", 2, 99)
    run_processes("alone", 1, 99)
    assert same(weights("whole", "rank-0"), weights("whole", "rank-1"))
    assert not same(weights("whole"), weights("alone"))  # which dropped other units
    run_processes("cut", 2, 7)
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    kept = json.loads(read_tensors(tmp_path / "cut" / "checkpoint.safetensors")[1]["progress"])
    assert kept["step"] == 5
    run_processes("cut", 2, 99)
    assert same(weights("whole"), weights("cut"))
