"""The OpenAPI description against the running server: what fits it, or does not, is never a failure of the server."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from tests.api.live import Live

OPERATIONS = [
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
    ("/v1/responses", "POST"),
    ("/v1/responses/input_tokens", "POST"),
    ("/v1/responses/{response_id}", "GET"),
    ("/v1/responses/{response_id}", "DELETE"),
    ("/v1/responses/{response_id}/input_items", "GET"),
    ("/v1/responses/{response_id}/cancel", "POST"),
    ("/v1/messages", "POST"),
    ("/v1/messages/count_tokens", "POST"),
    ("/tokenize", "POST"),
    ("/detokenize", "POST"),
    ("/v1/recipe/render", "POST"),
    ("/v1/cache", "GET"),
    ("/v1/models", "GET"),
    ("/v1/models/{model_id}", "GET"),
]
BOUNDED = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def description(shared: Live) -> Any:
    """Read from the running server, as a client would."""
    return schemathesis.openapi.from_url(f"{shared.url}/openapi.json")


def test_every_operation_is_tried(description: Any) -> None:
    described = {(op.ok().path, op.ok().method.upper()) for op in description.get_all_operations()}
    probes = {(path, "GET") for path in ("/health", "/ping", "/version", "/metrics", "/integrity")}
    assert described - probes == set(OPERATIONS)


BOTH_WAYS = [(path, method, GenerationMode.POSITIVE) for path, method in OPERATIONS]
BOTH_WAYS += [(path, method, GenerationMode.NEGATIVE) for path, method in OPERATIONS if method == "POST"]


@pytest.mark.parametrize(("path", "method", "mode"), BOTH_WAYS)
def test_no_request_makes_the_server_fail(
    description: Any, shared: Live, path: str, method: str, mode: GenerationMode
) -> None:
    operation = description[path][method]

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case[Any]) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "smollm2"  # else nearly all would end at the model's name
        response = case.call(base_url=shared.url)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            assert response.json()["error"]["message"]

    check()
