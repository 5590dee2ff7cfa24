"""What the API needs of the router and of the recipe, as protocols. The real ones and the tests' fakes fit them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Protocol

from forebay.core.grammar import GrammarSpec
from forebay.core.messages import IntegrityReport, ModelInfo, TokenOutput, WorkerStats
from forebay.core.prompt import Prompt
from forebay.core.request import GenerateRequest
from forebay.recipe import Conversation, Detokenizer
from forebay.recipe.markers import FoundMarker
from forebay.recipe.parsers import ParserSpec
from forebay.recipe.pieces import Piece
from forebay.recipe.vocabulary import Vocabulary


class RouterPort(Protocol):
    """Runs generations on a worker somewhere."""

    on_stats: Callable[[WorkerStats], None] | None
    """Called with each statistics message of the worker."""

    @property
    def model(self) -> ModelInfo:
        """The model that is served."""

    @property
    def healthy(self) -> bool:
        """Whether an engine is there to take requests."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenOutput, None]:
        """Outputs of all choices until each has a finish reason; closing the generator aborts what is left.

        Raises OverloadedError, EngineUnavailableError, ContextLengthError.
        """

    async def check_integrity(self) -> IntegrityReport:
        """The worker's recount of its pages. Raises EngineUnavailableError when it does not answer."""


class RecipePort(Protocol):
    """Conversations and text to token ids, and back."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The model's own ends of an answer."""

    @property
    def template_name(self) -> str:
        """Which chat template is used."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model."""

    @property
    def knows_thinking(self) -> bool:
        """Whether reasoning can be switched on and off."""

    @property
    def parsers(self) -> ParserSpec:
        """How the model's answers are read."""

    def check_grammar(self, grammar: GrammarSpec, param: str | None = None) -> None:
        """Raise InvalidRequestError, for `param`, when answers can't be held to a grammar. Blocking, up to a second."""

    def check_markers(self, conversation: Conversation) -> None:
        """Raise ConversationError, with the place, where a client's text holds a marker. Blocking like encoding."""

    def find_marker(self, text: str) -> FoundMarker | None:
        """The first marker in a text."""

    def encode_chat(self, conversation: Conversation, *, continue_final: bool = False) -> Prompt:
        """Ids of a conversation, ready for the assistant's answer. Raises InvalidRequestError with a dotted `param`."""

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """What `encode_chat` encodes; for showing it. Raises the same errors."""

    def encode_text(self, text: str) -> Prompt:
        """Ids of a raw prompt, with a beginning-of-sequence token where the model wants one."""

    def plain_ids(self, text: str) -> list[int]:
        """Ids of the text alone."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for."""

    def detokenizer(self, prompt_ids: Sequence[int] = ()) -> Detokenizer:
        """A new incremental detokeniser for text that follows the prompt."""
