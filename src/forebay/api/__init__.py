"""The HTTP edge: OpenAI's and Anthropic's protocols to token ids and sampling, and back. It holds no engine."""

from forebay.api.app import build_app
from forebay.api.auth import check_bind
from forebay.api.config import ApiConfig
from forebay.api.logs import configure_logs
from forebay.api.server import make_server

__all__ = ["ApiConfig", "build_app", "check_bind", "configure_logs", "make_server"]
