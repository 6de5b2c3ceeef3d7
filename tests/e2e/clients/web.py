"""Python's three HTTP clients: a page, a large upload in pieces, and events as they come."""

import asyncio
import hashlib
import sys
import time

URL, SIZE = "https://web.clients.example", 8 << 20
PIECE = b"x" * (1 << 16)
DIGEST = hashlib.sha256(b"x" * SIZE).hexdigest()


def pieces():
    for _ in range(SIZE // len(PIECE)):
        yield PIECE


def check(name, hello, sent, events):
    assert hello == {"hello": "web.clients.example"}, (name, hello)
    assert sent == {"length": SIZE, "sha256": DIGEST}, (name, sent)
    # The first arrives when it is sent: two more come, 0.3 seconds apart.
    assert events[-1] - events[0] > 0.4, (name, events)
    print(name, "ok")


def with_requests():
    import requests

    with requests.Session() as session:
        hello = session.get(URL + "/hello").json()
        sent = session.post(URL + "/sum", data=pieces()).json()
        stream = session.get(URL + "/events", stream=True)
        events = [time.monotonic() for line in stream.iter_lines(chunk_size=1) if line]
        refused = session.get(URL + "/no")
        assert refused.headers["x-causeway-denied"] == "request_denied", refused.text
        check("requests", hello, sent, events)


def with_httpx():
    import ssl

    import httpx

    with httpx.Client(http2=True, verify=ssl.create_default_context()) as client:
        answer = client.get(URL + "/hello")
        assert answer.http_version == "HTTP/2", answer.http_version
        sent = client.post(URL + "/sum", content=pieces(), timeout=30).json()
        with client.stream("GET", URL + "/events") as stream:
            events = [time.monotonic() for line in stream.iter_lines() if line]
        check("httpx", answer.json(), sent, events)


async def with_aiohttp():
    import aiohttp

    async def chunks():
        for piece in pieces():
            yield piece

    async with aiohttp.ClientSession() as session:
        hello = await (await session.get(URL + "/hello")).json()
        sent = await (await session.post(URL + "/sum", data=chunks())).json()
        stream = await session.get(URL + "/events")
        events = [time.monotonic() async for line in stream.content if line.strip()]
        check("aiohttp", hello, sent, events)


with_requests()
with_httpx()
asyncio.run(with_aiohttp())
