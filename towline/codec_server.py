"""A codec server: what Temporal's Web UI and command line ask to show encrypted payloads. The only door to aiohttp.

Temporal's protocol: POST /encode and POST /decode, a JSON `Payloads` in and out, with CORS for the Web UI's origin.
Whoever reaches it can read every payload, so it listens on this machine alone unless told otherwise, and a browser's
request from any other page is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from towline.errors import UsageError
from towline.payload_codec import EncryptingCodec

_LARGEST_REQUEST = 64 * 1024 * 1024
_ALLOWED = {
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": "authorization, content-type, x-namespace",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(codec: EncryptingCodec, origins: Sequence[str]) -> web.Application:
    """The server as an application of aiohttp; `origins` are those of Web UIs that may ask it."""

    @web.middleware
    async def only_from_the_web_ui(request: web.Request, handler: _Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is not None and origin not in origins:
            raise web.HTTPForbidden(text=f"pages of {origin} may not ask; start with --origin to allow it")
        preflight = request.method == "OPTIONS"
        response = web.Response(status=204) if preflight else await handler(request)
        if origin is not None:
            response.headers.update({"Access-Control-Allow-Origin": origin, **_ALLOWED})
        return response

    app = web.Application(middlewares=[only_from_the_web_ui], client_max_size=_LARGEST_REQUEST)
    for path, change in (("/encode", codec.encode), ("/decode", codec.decode)):
        app.router.add_post(path, _through(change))
        app.router.add_route("OPTIONS", path, _through(change))
    return app


async def serve(
    codec: EncryptingCodec, host: str, port: int, origins: Sequence[str], ready: Callable[[str], None]
) -> None:
    """Serve until cancelled; `ready` is told the address. Raises UsageError when it cannot listen there."""
    runner = web.AppRunner(application(codec, origins), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
        ready(f"http://{host}:{runner.addresses[0][1]}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _through(change: Callable[[Sequence[Payload]], Awaitable[list[Payload]]]) -> _Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            payloads = json_format.Parse(await request.read(), Payloads())
            changed = Payloads(payloads=await change(payloads.payloads))
        except (json_format.ParseError, UnicodeDecodeError):
            raise web.HTTPBadRequest(text="not a JSON `Payloads`") from None
        except UsageError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        return web.Response(text=json_format.MessageToJson(changed), content_type="application/json")

    return handler
