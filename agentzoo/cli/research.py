"""`agentzoo research ...`: inspect networks, compare agents, benchmarks and pre-training."""

from __future__ import annotations

from agentzoo.cli import bits, fuzz, heads, inspect, masked, measure, offline_rl, pretrain
from agentzoo.cli.groups import make_app

app = make_app(
    {
        "Inspect": {
            "inspect": inspect.inspect,
            "heads": heads.heads,
            "gates": heads.app,
            "infer": masked.infer,
            "bits": bits.bits,
        },
        "Compare": {
            "compare": measure.compare,
            "pairs": measure.pairs,
            "sweep": measure.sweep,
            "histories": measure.histories,
            "unimask": masked.app,
            "bench": measure.bench,
        },
        "Make": {"pretrain": pretrain.app, "offline-rl": offline_rl.offline_rl},
        "Check": {"fuzz": fuzz.fuzz},
    },
    "Inspect agents, compare them, measure speed, pre-train language models.",
)
