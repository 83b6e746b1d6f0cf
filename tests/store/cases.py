"""Changes of an agent's config on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
