"""An HTTP service that answers 202 when an order is with Kafka, and 429 with Retry-After when its quota is used up.

pip install fastapi httpx uvicorn; python examples/fastapi_orders.py
In production: BOOTSTRAP_SERVERS=kafka:9092 uvicorn fastapi_orders:app
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request, Response

from kclient_quota import AIOProducer, QuotaThrottledError
from kclient_quota.broker import EmbeddedBroker


@asynccontextmanager
async def lifespan(service: FastAPI) -> AsyncIterator[None]:
    """One producer for the life of the service; at most 20 requests wait for the quota, a fifth of a second each."""
    conf = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "client.id": "shop", "max.block.ms": 200}
    service.state.producer = AIOProducer(conf, batch_size=20, buffer_timeout=0.005)  # for bulk the defaults are larger
    yield
    await service.state.producer.close()


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def order(request: Request) -> Response:
    """Accept an order, or say when to come back."""
    producer: AIOProducer = request.app.state.producer
    try:
        await (await producer.produce("orders", await request.body()))  # acknowledged by the broker
    except QuotaThrottledError as error:
        return Response(status_code=429, headers={"Retry-After": str(-(-error.retry_after_ms // 1000))})
    return Response(status_code=202)


async def main() -> None:
    """A hundred orders at once, of which the quota lets some through."""
    transport = httpx.ASGITransport(app)
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        begin = time.monotonic()
        answers = await asyncio.gather(*(client.post("/orders", content=b"x" * 1000) for _ in range(100)))
    codes = Counter(answer.status_code for answer in answers)
    later = max(int(answer.headers.get("Retry-After", 0)) for answer in answers)
    print(f"accepted (202): {codes[202]}, told to come back (429): {codes[429]}, after {later} s at most")
    print(f"all answered within {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="shop", producer_byte_rate=4_000)
        os.environ["BOOTSTRAP_SERVERS"] = cluster.bootstrap_servers
        asyncio.run(main())
