import shutil
from pathlib import Path

import pytest

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "minari"


@pytest.fixture
def tiny_hopper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Id of a 20-episode Hopper dataset in a copy of the shipped Minari folder, which the test may write to."""
    root = tmp_path / "minari"
    shutil.copytree(ASSETS, root)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return "zoo/hopper/tiny-v0"
