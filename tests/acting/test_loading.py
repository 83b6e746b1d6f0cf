"""Loading an agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import make_agent
from models.acting_cases import small_config

from agentzoo.registry import families

LOADS = """
import sys
from agentzoo import Agent
for folder in sys.argv[1:]:
    Agent.from_pretrained(folder)
    print(folder, [name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""


def test_no_family_imports_a_compiler_when_it_is_loaded(tmp_path: Path) -> None:
    """It takes two seconds, more than all else after `import torch`: see `nn.sizes`."""
    folders = []
    for family in families():
        agent = make_agent(model=small_config(family))
        folders.append(str(agent.save_pretrained(tmp_path / family)))
    done = subprocess.run([sys.executable, "-c", LOADS, *folders], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{folder} []" for folder in folders], done.stderr
