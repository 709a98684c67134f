"""The loop that everybody writes first: one record after another, a commit after each.

python plain.py BOOTSTRAP TOPIC GROUP URL
"""

import asyncio
import json
import sys

import aiohttp
from aiokafka import AIOKafkaConsumer
from body import HEADERS, retain_call


async def main(bootstrap: str, topic: str, group: str, url: str) -> None:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with consumer, aiohttp.ClientSession(headers=HEADERS) as session:
        async for record in consumer:
            path, body = retain_call(json.loads(record.value))
            async with session.post(url + path, data=body) as reply:
                reply.raise_for_status()
                await reply.json()
            await consumer.commit()


asyncio.run(main(*sys.argv[1:]))
