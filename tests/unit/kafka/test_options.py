import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from consumer.errors import SettingsError
from consumer.kafka.oauth import ClientCredentials
from consumer.kafka.options import MAX_REQUEST_SIZE, client_options, consumer_options, producer
from consumer.settings.model import Settings


def settings(**fields: Any) -> Settings:
    return Settings(hindsight_api_url="http://localhost:8888", **fields)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a CA and a client, the client's key, once under a password, and a file that is none of these."""
    directory = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    client = ca.issue_cert("client@example.org")
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    client.cert_chain_pems[0].write_to_path(str(directory / "client.pem"))
    client.private_key_pem.write_to_path(str(directory / "client.key"))
    client.private_key_and_cert_chain_pem.write_to_path(str(directory / "both.pem"))
    (directory / "locked.key").write_bytes(_locked(client.private_key_pem.bytes(), b"sesame"))
    (directory / "rubbish.pem").write_text("no certificate")
    return directory


def _locked(key: bytes, password: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return s.load_pem_private_key(key, None).private_bytes(
        s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(password)
    )


def test_plaintext_options_have_only_the_address() -> None:
    assert client_options(settings(kafka_bootstrap_servers="a:1,b:2", kafka_client_id="us")) == {
        "bootstrap_servers": "a:1,b:2",
        "client_id": "us",
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_password_is_passed_to_the_client(mechanism: str) -> None:
    options = client_options(
        settings(
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism=mechanism,
            kafka_sasl_username="user",
            kafka_sasl_password="sesame",
        )
    )
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_mechanism"] == mechanism
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("user", "sesame")
    assert "ssl_context" not in options
    assert "sasl_oauth_token_provider" not in options


async def test_oauthbearer_has_a_token_provider_and_no_password() -> None:
    options = client_options(
        settings(
            kafka_security_protocol="SASL_SSL",
            kafka_sasl_mechanism="OAUTHBEARER",
            kafka_oauth_token_url="https://idp.example.org/token",
            kafka_oauth_client_id="us",
            kafka_oauth_client_secret="sesame",
        )
    )
    assert options["sasl_mechanism"] == "OAUTHBEARER"
    assert isinstance(options["sasl_oauth_token_provider"], ClientCredentials)
    assert isinstance(options["ssl_context"], ssl.SSLContext)
    assert "sasl_plain_password" not in options


def test_tls_checks_host_names_and_trusts_only_the_given_ca(files: Path) -> None:
    context = client_options(settings(kafka_security_protocol="SSL", kafka_ssl_cafile=files / "ca.pem"))["ssl_context"]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    [ca] = context.get_ca_certs()
    assert dict(pair for [pair] in ca["subject"])["organizationName"].startswith("trustme")


def test_tls_trusts_the_systems_cas_by_default() -> None:
    context = client_options(settings(kafka_security_protocol="SSL"))["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "tls",
    [
        {"kafka_ssl_certfile": "client.pem", "kafka_ssl_keyfile": "client.key"},
        {"kafka_ssl_certfile": "both.pem"},
        {"kafka_ssl_certfile": "client.pem", "kafka_ssl_keyfile": "locked.key", "kafka_ssl_password": "sesame"},
    ],
    ids=["two files", "one file", "a password"],
)
def test_client_certificates_are_loaded(files: Path, tls: dict[str, str]) -> None:
    given = {name: value if name.endswith("password") else files / value for name, value in tls.items()}
    assert client_options(settings(kafka_security_protocol="SSL", **given))["ssl_context"]


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        ({"kafka_ssl_cafile": "rubbish.pem"}, "kafka_ssl_cafile (PAPERCLIP_MEMORY_KAFKA_SSL_CAFILE)"),
        ({"kafka_ssl_certfile": "rubbish.pem"}, "kafka_ssl_certfile (PAPERCLIP_MEMORY_KAFKA_SSL_CERTFILE)"),
        ({"kafka_ssl_certfile": "client.pem"}, "kafka_ssl_certfile"),
        ({"kafka_ssl_certfile": "client.pem", "kafka_ssl_keyfile": "locked.key"}, "kafka_ssl_certfile"),
        (
            {"kafka_ssl_certfile": "client.pem", "kafka_ssl_keyfile": "locked.key", "kafka_ssl_password": "wrong-one"},
            "kafka_ssl_certfile",
        ),
    ],
    ids=["no CA", "no certificate", "no key", "no password", "wrong password"],
)
def test_unusable_tls_files_are_settings_errors(files: Path, tls: dict[str, str], named: str) -> None:
    given = {name: value if name.endswith("password") else files / value for name, value in tls.items()}
    with pytest.raises(SettingsError) as caught:
        client_options(settings(kafka_security_protocol="SSL", **given))
    [problem] = caught.value.problems
    assert problem.startswith(named)
    assert ".pem: " in problem
    assert "wrong-one" not in problem


@pytest.mark.parametrize("rack", ["eu-1a", None])
def test_consumer_options_have_the_rack(rack: str | None) -> None:
    options = consumer_options(settings(kafka_rack=rack))
    assert options["client_rack"] == rack
    assert options["bootstrap_servers"] == "localhost:9092"


@pytest.mark.parametrize("idempotence", [True, False])
async def test_producer_requires_all_replicas(idempotence: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("consumer.kafka.options.AIOKafkaProducer", given.update)
    producer(settings(kafka_enable_idempotence=idempotence))
    assert given == {
        "bootstrap_servers": "localhost:9092",
        "client_id": "paperclip-memory",
        "security_protocol": "PLAINTEXT",
        "acks": "all",
        "enable_idempotence": idempotence,
        "request_timeout_ms": 10_000,
        "max_request_size": MAX_REQUEST_SIZE,
    }


async def test_aiokafka_accepts_the_producers_options() -> None:
    await producer(settings()).stop()
