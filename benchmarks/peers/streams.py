"""FastStream with `max_workers`, and with faststream-concurrent-aiokafka; httpx, or httpx over its aiohttp transport.

python streams.py workers|middleware httpx|aiohttp BOOTSTRAP TOPIC GROUP URL IN_FLIGHT
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from body import HEADERS, retain_call
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from faststream_concurrent_aiokafka import (
    KafkaConcurrentProcessingMiddleware,
    initialize_concurrent_processing,
    stop_concurrent_processing,
)
from httpx_aiohttp import HttpxAiohttpClient

kind, transport, bootstrap, topic, group, url, limit = sys.argv[1:]
in_flight = int(limit)
if transport == "aiohttp":
    client = HttpxAiohttpClient(limits=httpx.Limits(max_connections=in_flight), headers=HEADERS)
else:
    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=in_flight), headers=HEADERS)

# Its line for each record is left out, which is in its favour.
broker = KafkaBroker(bootstrap, log_level=logging.DEBUG)
if kind == "middleware":
    broker.add_middleware(KafkaConcurrentProcessingMiddleware)
    how: dict[str, Any] = {"ack_policy": AckPolicy.MANUAL}
else:
    how = {"max_workers": in_flight}


@broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", **how)
async def retain(event: dict[str, Any]) -> None:
    path, body = retain_call(event)
    reply = await client.post(url + path, content=body)
    reply.raise_for_status()
    reply.json()


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    if kind == "middleware":
        await initialize_concurrent_processing(
            context=broker.context, concurrency_limit=in_flight, commit_batch_size=100, commit_batch_timeout_sec=1.0
        )
    yield
    if kind == "middleware":
        await stop_concurrent_processing(broker.context)


asyncio.run(FastStream(broker, lifespan=lifespan).run())
