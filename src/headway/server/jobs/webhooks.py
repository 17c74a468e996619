"""Webhooks: tell endpoints about a job's end, signed and retried as in Standard Webhooks 1.0.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import asyncio
import hmac
import json
import random
from base64 import b64decode, b64encode
from calendar import timegm
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from hashlib import sha256
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import unquote

from httpx2 import AsyncClient, Limits, Response
from sqlalchemy import Connection

from headway.errors import first_line
from headway.server.config.sections.jobs import ANY, PREFIX, WebhookSettings
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.store import JobStore
from headway.server.observe.logs import Log
from headway.server.protocol.problem import wrong
from headway.store.database import StoreError
from headway.store.deliveries import Delivery, add_deliveries, delivery_id, host_of
from headway.store.jobs import Job

# Seconds to the next attempt, by the number of attempts so far: the schedule of the standard.
PAUSES = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
SPREAD = 0.1  # random addition to a pause, as a share of it
LOOK = 1.0  # seconds between two looks for due deliveries
TIMEOUT = 20.0  # seconds for an answer
HELD = 60  # seconds after which an attempt without a stored end may be repeated
AT_ONCE = 8  # attempts to one host that may run at once: a dead host delays no other one
LONG = 2_000  # characters of a URL, at most
GONE = 410  # the status of an endpoint that wants no more deliveries


class Endpoints:
    """The webhook endpoints of the configuration."""

    def __init__(self, settings: Sequence[WebhookSettings]) -> None:
        self._settings = settings

    def announce(self, connection: Connection, job: Job, now: int) -> None:
        """Store the deliveries of a job's end, in the transaction that ends the job."""
        event = f"{'batch' if job.is_batch else 'job'}.{job.status}"
        takers = [each for each in self._settings if each.takes(event)]
        urls = [each.url for each in takers if not each.is_chosen]
        # Without it here, another server that shares the store has accepted it, and can send it.
        if job.callback and self.of(job.callback, event) in (None, *takers):
            urls.append(job.callback)
        bodies = []
        for url in urls:
            id = delivery_id(now)
            body = {"id": id, "object": "event", "type": event, "created_at": now}
            bodies.append((id, url, json.dumps({**body, "data": {"id": job.id}})))
        add_deliveries(connection, job.id, event, bodies, now)

    def of(self, url: str, event: str = "") -> WebhookSettings | None:
        """The endpoint that this URL belongs to: the one with exactly this URL, else the one with
        the longest matching prefix. event: decides between endpoints with the same URL."""
        found = [each for each in self._settings if each.matches(url)]

        def closeness(each: WebhookSettings) -> tuple[bool, int, bool]:
            return not each.is_chosen, len(each.url), each.takes(event)

        return max(found, key=closeness, default=None)

    def check(self, url: str) -> str:
        """Check a caller's own URL, and return it. Raises Problem unless the operator allows it.

        Only the operator decides which hosts this server can be made to call. A path with `..`
        could leave the allowed prefix, so it is refused.
        """
        name = "X-Headway-Callback"
        found = self.of(url) if url.isascii() and url.isprintable() and " " not in url else None
        if found is None or not found.is_chosen:
            raise wrong(f"{name}: this server's jobs.webhooks let nobody choose this URL", name)
        rest = url.removeprefix(found.url.removesuffix(ANY))[:LONG]
        while (decoded := unquote(rest)) != rest:  # a proxy may decode once, the server once more
            rest = decoded
        # Some servers drop `;...`.
        steps = [each.partition(";")[0] for each in rest.replace("\\", "/").split("/")]
        if ".." in steps or len(url) > LONG:
            raise wrong(f"{name}: the path must not lead upward, nor be very long", name)
        return url


class WebhookSender:
    """Sends due deliveries. A failed attempt is repeated as PAUSES says, and then given up."""

    def __init__(
        self, store: JobStore, endpoints: Endpoints, metrics: JobMetrics, log: Log
    ) -> None:
        self._store, self._endpoints = store, endpoints
        self._metrics, self._log = metrics, log
        self._running: dict[asyncio.Task[None], str] = {}  # the attempts, with their hosts

    async def run(self) -> None:
        """Deliver until cancelled. Each host has up to AT_ONCE attempts at the same time."""
        none = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # it keeps no cookies
        some = Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
        client = AsyncClient(timeout=None, limits=some, follow_redirects=False, cookies=none)
        async with client, asyncio.TaskGroup() as group:
            while True:
                with suppress(StoreError):  # the store's other users log it
                    async for each in self._begun():
                        task = group.create_task(self._deliver(client, each))
                        self._running[task] = host_of(each.url)
                        task.add_done_callback(self._running.pop)
                if self._running:
                    first = asyncio.FIRST_COMPLETED
                    await asyncio.wait(self._running, timeout=LOOK, return_when=first)
                else:
                    await asyncio.sleep(LOOK)

    async def _begun(self) -> AsyncIterator[Delivery]:
        """Begin attempts at the due deliveries whose hosts may have more, and yield them."""
        deliveries, now = self._store.deliveries, self._store.unix()
        while found := await self._store.ask(deliveries.due, now, AT_ONCE, self._full):
            for each in found:
                if host_of(each.url) in self._full:
                    continue
                if await self._store.ask(deliveries.begin, each, now + HELD):
                    yield replace(each, attempts=each.attempts + 1)

    @property
    def _full(self) -> list[str]:
        """The hosts that may have no further attempt now."""
        counts = Counter(self._running.values())
        return [host for host, count in counts.items() if count >= AT_ONCE]

    async def _deliver(self, client: AsyncClient, delivery: Delivery) -> None:
        ends = await self._attempt(client, delivery)
        about = {"url": delivery.url, "type": delivery.event, "job": delivery.job}
        outcome = "delivered" if ends.delivered_at else "again" if ends.due_at else "given_up"
        self._metrics.webhooks[outcome] += 1
        if ends.delivered_at:
            self._log.info("webhook delivered", **about)
        else:
            self._log.warning("webhook failed", **about, why=ends.problem, final=not ends.due_at)

        with suppress(StoreError):  # the delivery is due again after HELD seconds
            await self._store.ask(self._store.deliveries.end, ends)

    async def _attempt(self, client: AsyncClient, delivery: Delivery) -> Delivery:
        """Make one attempt, and return the delivery as it is afterwards."""
        endpoint = self._endpoints.of(delivery.url, delivery.event)
        now = self._store.unix()
        if endpoint is None or not endpoint.takes(delivery.event):
            # Another server that shares the store may have it.
            due = None if self._store.is_alone else again(delivery.attempts, now)
            return replace(delivery, due_at=due, problem="jobs.webhooks does not have it")
        body = delivery.body.encode()
        headers = signed(endpoint.secret, delivery.id, now, body)
        why = ""
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                client.stream("POST", delivery.url, content=body, headers=headers) as answer,
            ):
                pass  # only the status counts; the body is not read
        except TimeoutError:
            why = f"no answer within {TIMEOUT:g} s"
        except Exception as error:  # the attempt's edge: other attempts go on
            why = f"{type(error).__name__}: {first_line(error)}"
        if why:
            return replace(delivery, due_at=again(delivery.attempts, now), problem=why)
        if answer.is_success:
            return replace(delivery, due_at=None, delivered_at=now, problem="")
        why = f"status {answer.status_code}"
        if answer.status_code == GONE:
            return replace(delivery, due_at=None, problem=why)
        due = again(delivery.attempts, now, _retry_after(answer, now))
        return replace(delivery, due_at=due, problem=why)


def signed(secret: str, id: str, now: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery, which prove who sent this body, and when."""
    key = b64decode(secret.removeprefix(PREFIX))
    signature = hmac.digest(key, f"{id}.{now}.".encode() + body, sha256)
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }


def again(attempts: int, now: int, least: int = 0) -> int | None:
    """When to try again after this many attempts; None: give up. least: seconds to wait at
    least."""
    if attempts > len(PAUSES):
        return None
    pause = PAUSES[attempts - 1] * (1 + random.uniform(0, SPREAD))
    return now + max(least, round(pause))


def _retry_after(answer: Response, now: int) -> int:
    """The seconds to wait that an answer asks for, whether as a number or as a date. At most the
    longest pause; 0: none, or one that cannot be read."""
    value = answer.headers.get("retry-after", "")
    if value.isdecimal() and value.isascii():
        asked = int(value[:9])
    else:
        try:
            # A date without a zone is in UTC (RFC 9110), and utctimetuple takes it so.
            asked = timegm(parsedate_to_datetime(value).utctimetuple()) - now
        except (ValueError, OverflowError):
            return 0
    return max(0, min(asked, PAUSES[-1]))
