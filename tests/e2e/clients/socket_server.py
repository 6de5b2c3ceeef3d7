"""A WebSocket server that speaks first, and then sends back what it gets."""

import asyncio
import ssl
import sys

from websockets.asyncio.server import serve


async def talk(connection):
    await connection.send("first")
    async for message in connection:
        await connection.send(message)


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[1])
    async with serve(talk, "3ffe:b00::87", 443, ssl=context, max_size=None) as server:
        await server.serve_forever()


asyncio.run(main())
