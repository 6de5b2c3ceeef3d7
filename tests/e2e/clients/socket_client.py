"""Text and large binary messages over a WebSocket, and one that no rule permits."""

import asyncio
import os

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


async def main():
    async with connect("wss://socket.clients.example/ws", max_size=None) as connection:
        assert await connection.recv() == "first"
        for message in ("text", os.urandom(4 << 20)):
            await connection.send(message)
            assert await connection.recv() == message
    try:
        await connect("wss://socket.clients.example/other")
        raise SystemExit("the other path was answered")
    except InvalidStatus as refused:
        assert refused.response.headers["x-causeway-denied"] == "request_denied", refused
    print("websocket ok")


asyncio.run(main())
