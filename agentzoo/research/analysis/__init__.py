"""Analyses of a trained network; `agentzoo research inspect` runs all of them.

`markov_report(agent)` needs weights only, and takes language models too. `head_importance`, `gate_report`,
`attention_maps` and `memory_report` run on windows, for example those of an agent's own episodes (`decision_windows`).
"""

from agentzoo.research.analysis.agent_windows import decision_windows
from agentzoo.research.analysis.gate_report import GateReport, gate_curve, gate_report, r_markov
from agentzoo.research.analysis.head_report import MarkovReport, markov_report
from agentzoo.research.analysis.importance import HeadImportance, head_importance
from agentzoo.research.analysis.maps import attention_maps
from agentzoo.research.analysis.memory import MemoryReport, memory_report
from agentzoo.research.analysis.theorems import (
    diagonal_of_random_tokens,
    ratio_of_random_tokens,
    updates_that_keep_a_markov_matrix,
)

__all__ = [
    "GateReport",
    "HeadImportance",
    "MarkovReport",
    "MemoryReport",
    "attention_maps",
    "decision_windows",
    "diagonal_of_random_tokens",
    "gate_curve",
    "gate_report",
    "head_importance",
    "markov_report",
    "memory_report",
    "r_markov",
    "ratio_of_random_tokens",
    "updates_that_keep_a_markov_matrix",
]
