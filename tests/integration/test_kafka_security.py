"""Our Kafka settings against a real Apache Kafka that asks who we are: TLS with a CA of its own, and SASL."""

import base64
import gc
import json
import signal
import subprocess
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from consumer.embedded.supervise import wait_until
from consumer.errors import UpstreamDown
from consumer.kafka.options import lane_consumer, producer
from consumer.kafka.producer import Publisher
from consumer.kafka.topics import TopicState, ensure_topics, survey_topics
from consumer.settings.model import Settings
from consumer.settings.types import variable
from demo.services import command, environment
from tests.support import kafka_jvm
from tests.support.kafka_jvm import JvmKafka, Listener

pytestmark = [
    pytest.mark.real_kafka,
    # A connection that was refused is still closing when its test's event loop ends.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

USER, PASSWORD = "memory", "sesame-4711"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Secure:
    """A broker that asks: at `sasl` for a password or a token, at `mutual` for a certificate. Files are PEM."""

    sasl: str
    mutual: str
    ca: Path
    client: Path
    other_ca: Path

    def settings(self, **fields: Any) -> dict[str, Any]:
        base = {
            "hindsight_api_url": "http://127.0.0.1:1",
            "kafka_bootstrap_servers": self.sasl,
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": "PLAIN",
            "kafka_sasl_username": USER,
            "kafka_sasl_password": PASSWORD,
            "kafka_ssl_cafile": self.ca,
        }
        return {name: value for name, value in (base | fields).items() if value is not None}

    def mutual_settings(self, **fields: Any) -> dict[str, Any]:
        none = {"kafka_sasl_mechanism": None, "kafka_sasl_username": None, "kafka_sasl_password": None}
        more = {"kafka_bootstrap_servers": self.mutual, "kafka_security_protocol": "SSL"}
        return self.settings(**{**none, **more, "kafka_ssl_certfile": self.client, **fields})


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, server_logs: Path) -> Iterator[Secure]:
    if not kafka_jvm.available():
        pytest.skip("needs an Apache Kafka with listeners of our own: a JVM and Maven")
    home = tmp_path_factory.mktemp("secure")
    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(str(home / "ca.pem"))
    other.cert_pem.write_to_path(str(home / "other.pem"))
    (home / "server.pem").write_bytes(_pkcs8(ca.issue_cert("127.0.0.1")))
    ca.issue_cert("memory@example.org").private_key_and_cert_chain_pem.write_to_path(str(home / "client.pem"))
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "ca.pem"),
    }
    sasl = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        # Without more, Kafka's own validator of unsecured tokens: it reads them, and looks at their times.
        "oauthbearer.sasl.jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
    }
    listeners = [
        Listener("ASKING", "SASL_SSL", {**tls, **sasl}),
        Listener("MUTUAL", "SSL", {**tls, "ssl.client.auth": "required"}),
    ]
    scram = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in MECHANISMS if "SCRAM" in mechanism]
    with JvmKafka(server_logs, listeners, scram) as kafka:
        where = kafka.servers_of
        yield Secure(where["ASKING"], where["MUTUAL"], home / "ca.pem", home / "client.pem", home / "other.pem")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Key and chain as Kafka reads them."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    return key.private_bytes(encoding, form, serialization.NoEncryption()) + chain


@dataclass
class TokenServer:
    """A token endpoint of the client credentials grant; its tokens are unsecured (RFC 7519, 6)."""

    url: str = ""
    secret: str = PASSWORD
    lifetime: float = 3600
    issued: int = 0

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        expected = base64.b64encode(f"{USER}:{self.secret}".encode()).decode()
        if form["grant_type"] != "client_credentials" or request.headers["Authorization"] != f"Basic {expected}":
            return web.json_response({"error": "invalid_client"}, status=401)
        self.issued += 1
        now = time.time()
        claims = {"sub": USER, "scope": form["scope"], "iat": now, "exp": now + self.lifetime}
        token = ".".join([_part({"alg": "none"}), _part(claims), ""])
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime})

    def settings(self) -> dict[str, Any]:
        return {
            "kafka_sasl_mechanism": "OAUTHBEARER",
            "kafka_sasl_username": None,
            "kafka_sasl_password": None,
            "kafka_oauth_token_url": self.url,
            "kafka_oauth_client_id": USER,
            "kafka_oauth_client_secret": PASSWORD,
            "kafka_oauth_scope": "kafka",
        }


def _part(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    app = web.Application()
    app.add_routes([web.post("/token", server.token)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/token"
    yield server
    await runner.cleanup()


async def works(fields: dict[str, Any], group: str) -> None:
    """All kinds of client that we have: administration, a producer, and a lane's consumer that commits."""
    settings = Settings(**fields)
    assert all(report.state in (TopicState.CREATED, TopicState.EXISTS) for report in await ensure_topics(settings))
    publisher = Publisher(partial(producer, settings))
    await publisher.publish(settings.topic_issue_comments, group.encode(), b"hello")
    await publisher.close()
    consumer = lane_consumer(settings, group)
    consumer.subscribe([settings.topic_issue_comments])
    await consumer.start()
    try:
        keys: list[bytes | None] = []
        while group.encode() not in keys:
            keys += [record.key for batch in (await consumer.getmany(timeout_ms=200)).values() for record in batch]
        await consumer.commit()
    finally:
        await consumer.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_password_authenticates(secure: Secure, mechanism: str) -> None:
    await works(secure.settings(kafka_sasl_mechanism=mechanism), mechanism)


async def test_token_authenticates(secure: Secure, tokens: TokenServer) -> None:
    await works(secure.settings(**tokens.settings()), "OAUTHBEARER")
    assert tokens.issued == 3  # one for each client, however many connections it has


async def test_client_certificate_authenticates(secure: Secure) -> None:
    await works(secure.mutual_settings(), "certificate")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_wrong_password_is_named_in_the_error(secure: Secure, mechanism: str) -> None:
    settings = Settings(**secure.settings(kafka_sasl_mechanism=mechanism, kafka_sasl_password="wrong-0815"))
    with pytest.raises(UpstreamDown) as caught:
        await survey_topics(settings)
    text = str(caught.value).lower()
    assert "authentication" in text
    assert "wrong-0815" not in text


async def test_token_server_that_refuses_is_named_in_the_error(secure: Secure, tokens: TokenServer) -> None:
    tokens.secret = "another"
    with pytest.raises(UpstreamDown, match=r"no token from http://127\.0\.0\.1:\d+/token: status 401"):
        await survey_topics(Settings(**secure.settings(**tokens.settings())))


async def test_token_that_kafka_refuses_is_named_in_the_error(secure: Secure, tokens: TokenServer) -> None:
    tokens.lifetime = -600
    with pytest.raises(UpstreamDown, match="If the broker refused the token, only its own log says so"):
        await survey_topics(Settings(**secure.settings(**tokens.settings())))


async def test_untrusted_certificate_is_named_in_the_error(secure: Secure) -> None:
    with pytest.raises(UpstreamDown, match="certificate verify failed"):
        await survey_topics(Settings(**secure.settings(kafka_ssl_cafile=secure.other_ca)))


async def test_missing_client_certificate_is_named_in_the_error(secure: Secure) -> None:
    # With TLS 1.3 the handshake is over for us when the broker looks for a certificate, and hangs up.
    with pytest.raises(UpstreamDown, match=f"{secure.mutual} closed"):
        await survey_topics(Settings(**secure.mutual_settings(kafka_ssl_certfile=None)))


def run_check(fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    done = subprocess.run([command(), "check", "--json"], env=variables(fields), capture_output=True, check=False)
    assert PASSWORD.encode() not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def variables(fields: dict[str, Any]) -> dict[str, str]:
    env = environment({})
    return env | {variable(name): str(value) for name, value in fields.items()}


def test_check_fails_on_a_wrong_password(secure: Secure) -> None:
    code, found = run_check(secure.settings(kafka_sasl_password="wrong-0815"))
    (kafka,) = [probe for probe in found["probes"] if probe["name"] == "kafka"]
    assert code == 1
    assert kafka["mark"] == "failed"
    assert "authentication" in kafka["text"].lower()
    assert "kafka_*" in kafka["fix"]
    assert "wrong-0815" not in json.dumps(found)


def test_check_passes_with_the_right_password(secure: Secure) -> None:
    _, found = run_check(secure.settings())
    assert {probe["mark"] for probe in found["probes"] if probe["name"] == "kafka"} == {"ok"}


def test_worker_with_a_wrong_password_logs_it_and_ends_on_sigterm(secure: Secure, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    fields = secure.settings(kafka_sasl_password="wrong-0815", worker_port=0)
    with log.open("wb") as out:
        worker = subprocess.Popen([command(), "worker"], env=variables(fields), stdout=out, stderr=out)
    try:
        assert wait_until(lambda: "Kafka is not reachable" in log.read_text(), 60)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (probe,) = [line for line in lines if line.get("probe") == "kafka"]
        assert probe["level"] == "error"
        assert "SaslAuthenticationFailed" in probe["result"]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        assert "wrong-0815" not in log.read_text()
    finally:
        worker.kill()
        worker.wait()
