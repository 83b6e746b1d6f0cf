"""An agent on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_agent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_agent().save_pretrained(tmp_path / "agent")
