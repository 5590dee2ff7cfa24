"""What all requests' models have in common: strictness, and validation whose cost is bounded by what is valid.

pydantic collects an error for every wrong item; a body of a million wrong items would hold up the event loop for
seconds. So lists end at their first wrong item, and objects with too many keys are refused before a key is looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

_MAX_KEYS: Final = 128


class _FirstWrong(FailFast):
    """pydantic's FailFast, hashable, as members of a union have to be."""

    def __hash__(self) -> int:
        return hash(self.fail_fast)


T = TypeVar("T")
Items = Annotated[list[T], _FirstWrong()]
"""A list that is refused at its first wrong item."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


def quoted(word: str) -> str:
    """A client's word for a sentence of an error: cut to 64 characters, and without half characters, which pydantic
    can't hold."""
    return word[:64].encode("utf-8", "replace").decode()


def tag_of(value: object) -> str:
    """The tag by which a union is told apart: `~` and the object's `type`, so that an error's place never shows it as
    a field."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"~{kind}"


def _few_keys(value: object, most: int) -> object:
    if isinstance(value, dict) and len(value) > most:
        text = "the object has {count} keys, of at most {most}"
        raise PydanticCustomError("too_many_keys", text, {"count": len(value), "most": most})
    return value


def at_most_keys(most: int) -> BeforeValidator:
    """Refuses an object with more keys at once."""
    return BeforeValidator(lambda value: _few_keys(value, most))


class Wire(BaseModel):
    """Base of all requests: no unknown fields, no coercion, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _bounded(cls, value: Any) -> Any:
        return _few_keys(value, _MAX_KEYS)
