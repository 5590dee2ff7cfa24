"""The options of the HTTP edge. Attribute docstrings are the command line's help; nothing here opens a socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """Where the API listens, who may use it and how much one caller may ask for."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but a loopback address needs API keys (or --allow-unauthenticated)."""
    port: int = 8000
    """TCP port to listen on; 0 takes a free one."""
    served_model_names: tuple[str, ...] = ()
    """Names that requests may give for the model, the first being the one shown in answers. Its own name works too."""
    api_keys: tuple[str, ...] = ()
    """Keys that callers may present (Authorization: Bearer, or x-api-key): `TENANT:KEY`, or a key alone, which belongs
    to the tenant "default"."""
    api_key_file: Path | None = None
    """TOML file of [[key]] tables: key, and optionally tenant, priority (the default of its requests), ceiling (the
    most urgent priority that it may ask for) and strict_markers."""
    allow_unauthenticated: bool = False
    """Listen on a public address without any API key: everybody who reaches the port may use the model."""
    strict_markers: bool = False
    """Refuse requests whose texts spell a control token or a delimiter of the chat template (422), for all callers.
    Off, such spellings are plain text like any other. A key can have it on (`strict_markers` in its table), and a
    request can ask for it (`strict_markers`, or the header x-forebay-strict-markers)."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Largest request body in bytes; larger ones are answered with 413."""
    body_timeout_s: float = 60.0
    """Seconds within which a request's body must have arrived; slower ones are answered with 408."""
    max_messages: int = 4096
    """Most messages in one conversation."""
    max_prompts: int = 64
    """Most prompts in one /v1/completions request."""
    max_choices: int = 16
    """Largest `n`, the number of answers to one prompt."""
    max_stop_strings: int = 16
    """Most stop strings in one request, each of at most 1,024 characters."""
    max_logprobs: int = 20
    """Most alternatives a request may ask for at each token (`top_logprobs`, `logprobs`, `prompt_logprobs`)."""
    kept_answers: int = 16_384
    """Most answers whose token ids are kept, so that they enter the prompt unchanged when clients send them back."""
    kept_answers_bytes: int = 64 * 1024 * 1024
    """Most bytes of kept answers."""
    kept_answers_ttl_s: float = 86_400.0
    """Seconds after its last use for which an answer is kept."""
    stored_responses: int = 4096
    """Most responses of /v1/responses that are kept for later requests, of all tenants together."""
    stored_responses_bytes: int = 256 * 1024 * 1024
    """Most bytes of kept responses, as JSON."""
    stored_responses_ttl_s: float = 86_400.0
    """Seconds after its last use for which a response is kept."""
    background_responses: int = 64
    """Most responses that are made in the background at one time; 0 refuses `background`."""
    request_timeout_s: float = 3600.0
    """Seconds after which a request that is not complete is ended with 504."""
    keepalive_s: float = 10.0
    """Seconds of silence in a stream after which empty lines (OpenAI) or a ping event (Anthropic) are sent."""
    stall_s: float = 60.0
    """Seconds that a client may take to accept a piece of a stream; after that it is treated as gone."""
    shutdown_grace_s: float = 2.0
    """Seconds that running requests get to finish when the server is told to stop."""
