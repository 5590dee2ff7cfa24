"""Puts the API together: routes, and around them, from the outside in: request id, access, key, body limit."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse

from forebay import __version__
from forebay.api.access import AccessMiddleware
from forebay.api.answer_store import AnswerStore
from forebay.api.anthropic_messages import anthropic_routes
from forebay.api.auth import AuthMiddleware, KeyRing, configured_keys
from forebay.api.config import ApiConfig
from forebay.api.docs_page import docs_html
from forebay.api.errors import install_handlers
from forebay.api.health import health_routes
from forebay.api.limits import BodyLimitMiddleware
from forebay.api.metrics import ApiMetrics, metrics_routes
from forebay.api.models import model_routes
from forebay.api.openai_chat import chat_routes
from forebay.api.openai_completions import completion_routes
from forebay.api.ports import RecipePort, RouterPort
from forebay.api.render import render_routes
from forebay.api.request_id import RequestIdMiddleware
from forebay.api.responses_jobs import Jobs
from forebay.api.responses_routes import responses_routes
from forebay.api.service import Service
from forebay.api.tokenize import tokenize_routes

_ABOUT = "Generates text with an open-weight model, in OpenAI's and Anthropic's protocols."
_DOCS_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


def build_app(router: RouterPort, recipe: RecipePort, config: ApiConfig) -> FastAPI:
    """The ASGI app for a router whose worker is ready (its `model` is known). Takes over `router.on_stats`.

    Raises ConfigError for keys that can't be read. The bind rule is the caller's: see `auth.check_bind`.
    """
    names = (*config.served_model_names, router.model.name)
    metrics = ApiMetrics(names[0])
    router.on_stats = metrics.on_stats
    answers = AnswerStore(config.kept_answers, config.kept_answers_bytes, config.kept_answers_ttl_s)
    service = Service(router, recipe, config, metrics, answers)
    jobs = Jobs(config.background_responses)
    app = FastAPI(
        title="Forebay",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        middleware=_layers(config, metrics),
        lifespan=lambda _: jobs.running(),
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    install_handlers(app)
    _add_routes(app, service, jobs)
    return app


def _layers(config: ApiConfig, metrics: ApiMetrics) -> list[Middleware]:
    return [
        Middleware(RequestIdMiddleware),
        Middleware(AccessMiddleware, metrics=metrics),
        Middleware(AuthMiddleware, ring=KeyRing(configured_keys(config))),
        Middleware(BodyLimitMiddleware, max_bytes=config.max_body_bytes, timeout_s=config.body_timeout_s),
    ]


def _add_routes(app: FastAPI, service: Service, jobs: Jobs) -> None:
    for routes in (
        chat_routes(service),
        responses_routes(service, jobs),
        completion_routes(service),
        anthropic_routes(service),
        model_routes(service),
        tokenize_routes(service),
        render_routes(service),
        health_routes(service),
        metrics_routes(service.metrics),
        service.metrics.last.routes(service.router.model.retention_classes),
    ):
        app.include_router(routes)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_html(app.openapi()), headers=_DOCS_HEADERS)
