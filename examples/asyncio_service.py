"""An asyncio service that answers 429 with Retry-After while its Kafka quota is used up.

python examples/asyncio_service.py
"""

import asyncio
import math
from collections import Counter

from kclient_quota import AIOProducer, QuotaThrottledError
from kclient_quota.broker import EmbeddedBroker


async def answer(producer: AIOProducer, order: bytes) -> str:
    """Take an order: status line and headers of the HTTP answer."""
    try:
        delivered = await producer.produce("orders", order)
    except QuotaThrottledError as error:
        return f"429 Too Many Requests\r\nRetry-After: {math.ceil(error.retry_after_ms / 1000)}"
    return f"201 Created\r\nLocation: /orders/{(await delivered).offset()}"


async def serve(producer: AIOProducer) -> asyncio.Server:
    async def on_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        order = await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        writer.write(f"HTTP/1.1 {await answer(producer, order)}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    return await asyncio.start_server(on_request, "127.0.0.1", 0)


async def order(port: int, answers: Counter[str], number: int) -> None:
    """One customer, who tries again when told to."""
    status = " 429 "
    while " 429 " in status:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /orders HTTP/1.1\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000)
        status, _, rest = (await reader.read()).decode().partition("\r\n")
        writer.close()
        answers[status.split()[1]] += 1
        await asyncio.sleep(int((rest.partition("Retry-After: ")[2] or "0").split()[0]) + number / 40)


async def main(servers: str) -> None:
    conf = {"bootstrap.servers": servers, "client.id": "shop", "quota.backoff": "raise"}
    answers = Counter[str]()
    async with AIOProducer(conf) as producer:
        server = await serve(producer)
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*(order(port, answers, number) for number in range(40)))
        print(f"orders taken (201): {answers['201']}, told to come back (429): {answers['429']}")


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="shop", producer_byte_rate=10_000)
        asyncio.run(main(cluster.bootstrap_servers))
