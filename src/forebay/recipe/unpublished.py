"""Templates of models whose makers publish no Jinja: found by the tokens of a vocabulary.

What the model's maker publishes instead is what they are proved equal to: DeepSeek's encoder at load, OpenAI's harmony
library in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from forebay.recipe.templates.deepseek_official import prove
from forebay.recipe.templates.deepseek_v4 import DeepSeekV4, DeepSeekV41
from forebay.recipe.templates.harmony import Harmony
from forebay.recipe.vocabulary import Vocabulary


def template_by_tokens(vocabulary: Vocabulary, now: Callable[[], datetime]) -> DeepSeekV4 | Harmony | None:
    """The template of the one kind of model that has these tokens; None where the tokens say nothing.

    Raises UnsupportedModelError for DeepSeek V4 and V4.1 without the package that their format is proved against.
    """
    for kind in (DeepSeekV41, DeepSeekV4):
        try:
            template = kind.of(vocabulary)
        except KeyError:
            continue
        prove(template, vocabulary.control)
        return template
    try:
        return Harmony.of(vocabulary, now)
    except KeyError:
        return None
