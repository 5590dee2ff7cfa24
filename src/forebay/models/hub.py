"""Downloads a model's files from the Hugging Face hub, or finds them in its cache. Not a mirror and not a search."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from forebay.core.errors import ModelNotFoundError

WANTED: Final = (
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
)
"""Leaves out other copies of the same weights (pytorch_model.bin, consolidated.safetensors, onnx)."""


def download(name: str) -> Path:
    """The folder with the files of hub model `name`, downloaded unless they are in the cache already.

    Honours HF_HUB_OFFLINE, HF_HOME and HF_TOKEN. Raises ModelNotFoundError where there is no such model, no access to
    it, or no network.
    """
    # Imported here since it takes a quarter of a second that a local model need not wait for.
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except GatedRepoError:
        raise ModelNotFoundError(
            f"The hub gives {name} only to those who accepted its licence; set HF_TOKEN to the token of one who has."
        ) from None
    except RepositoryNotFoundError:
        raise ModelNotFoundError(f"The hub has no model {name} (or it is private and HF_TOKEN is not set).") from None
    except HFValidationError:
        raise ModelNotFoundError(f"{name!r} is neither a file, a folder nor a possible hub name.") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelNotFoundError(
            f"The model {name} is not in the local cache and the hub can't be reached ({type(error).__name__}). "
            f"Check the network and HF_HUB_OFFLINE, or give a folder or a .gguf file."
        ) from error
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"The hub's {name} has no config.json, so it is not a model that Forebay can read.")
    return folder
