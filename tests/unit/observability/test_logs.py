import json
import logging
from typing import Any

import pytest
import structlog

from consumer.observability.logs import RateLimitFilter, Throttle, configure_logging, redact
from consumer.settings.types import LogFormat, LogLevel


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def no_handlers() -> None:
    logging.getLogger().handlers[:] = []


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    output = capsys.readouterr()
    assert output.out == ""
    return [json.loads(line) for line in output.err.splitlines()]


def test_json_lines_have_level_and_time_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    structlog.get_logger().info("record handled", offset=7)
    [line] = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "record handled", "level": "info", "offset": 7}


def test_json_carries_lone_surrogates(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    structlog.get_logger().info("half an emoji \ud83d")
    assert lines(capsys)[0]["event"] == "half an emoji \ud83d"


def test_console_lines_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.CONSOLE, LogLevel.INFO)
    structlog.get_logger().info("record handled", offset=7)
    output = capsys.readouterr().err
    assert "record handled" in output
    assert "offset=7" in output
    assert "\x1b" not in output


def test_console_lines_contain_no_control_characters_of_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.CONSOLE, LogLevel.INFO)
    logging.getLogger("aiokafka").warning("unknown topic %s", "\x1b[2J\x9b31m\r\nforged line")
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 1
    assert not {"\x1b", "\x9b", "\r"} & set(output)


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_traceback_is_shown_and_redacted(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format, LogLevel.INFO)
    structlog.get_logger().error("boom", exc_info=RuntimeError("refused Bearer sesame"))
    output = capsys.readouterr().err
    assert "RuntimeError: refused Bearer [redacted]" in output
    assert "sesame" not in output


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.ERROR)
    structlog.get_logger().warning("ours")
    logging.getLogger("aiokafka.conn").warning("theirs")
    logging.getLogger("aiokafka.conn").error("theirs too")
    assert [line["event"] for line in lines(capsys)] == ["theirs too"]


def test_libraries_are_logged_from_warnings_up(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.DEBUG)
    structlog.get_logger().debug("ours")
    logging.getLogger("aiokafka.conn").info("theirs, in detail")
    logging.getLogger("aiokafka.conn").warning("no connection to %s", "broker:9092")
    [ours, theirs] = lines(capsys)
    assert ours["event"] == "ours"
    assert theirs.pop("timestamp")
    assert theirs == {"event": "no connection to broker:9092", "level": "warning", "logger": "aiokafka.conn"}


def test_a_second_configuration_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.ERROR)
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    structlog.get_logger().info("ours")
    logging.getLogger("aiokafka").warning("theirs")
    assert [line["event"] for line in lines(capsys)] == ["ours", "theirs"]


def test_repeated_library_lines_of_one_kind_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    for port in range(100):
        logging.getLogger("aiokafka").warning("no connection to %d", port)
    logging.getLogger("aiokafka").warning("another")
    assert [line["event"] for line in lines(capsys)] == ["no connection to 0", "another"]


def test_the_next_line_has_the_number_of_suppressed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    clock = Clock()
    [handler] = logging.getLogger().handlers
    handler.filters[:] = [RateLimitFilter(Throttle(10.0, clock))]
    for _ in range(3):
        logging.getLogger("aiokafka").warning("no connection")
    clock.now = 10.0
    logging.getLogger("aiokafka").warning("no connection")
    assert [line.get("held_back") for line in lines(capsys)] == [None, 2]


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "Authorization", "Set-Cookie", "api_key", "HINDSIGHT_API_KEY", "kafka_sasl_password"),
        *(
            "client_secret",
            "access_token",
            "body",
            "comment_body",
            "content",
            "payload",
            "query",
            "body_snippet",
        ),
    ],
)
def test_secrets_and_texts_are_hidden_by_their_name(name: str) -> None:
    assert redact(None, "info", {"event": "e", name: "sesame"}) == {"event": "e", name: "[redacted]"}


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("401 for Bearer sesame.and.more, go", "401 for Bearer [redacted] go"),
        ("header basic c2VzYW1l", "header basic [redacted]"),
        ("nothing to hide", "nothing to hide"),
        (
            {"a": {"authorization": "sesame", "host": "h"}},
            {"a": {"authorization": "[redacted]", "host": "h"}},
        ),
        ({7: "Bearer sesame"}, {7: "Bearer [redacted]"}),
        (["Bearer sesame", ("x", 1)], ["Bearer [redacted]", ["x", 1]]),
        (None, None),
        (True, True),
        (1.5, 1.5),
        (b"bytes", b"bytes"),
    ],
)
def test_other_values_lose_only_credentials(value: object, output: object) -> None:
    assert redact(None, "info", {"error": value}) == {"error": output}


def test_a_number_under_a_secret_name_is_not_redacted() -> None:
    assert redact(None, "info", {"token": 512}) == {"token": 512}


def test_a_throttle_passes_one_of_a_kind_per_interval() -> None:
    clock = Clock()
    throttle = Throttle(10.0, clock)
    passed = []
    for clock.now in (0.0, 1.0, 9.9, 10.0, 10.1, 30.0, 50.0):
        passed.append(throttle.held_back("kind"))
    assert passed == [0, None, None, 2, None, 1, 0]
    assert throttle.held_back("another kind") == 0


def test_a_throttle_remembers_only_so_many_kinds() -> None:
    throttle = Throttle(10.0, Clock(), kinds=2)
    assert [throttle.held_back(kind) for kind in "aabbca"] == [0, None, 0, None, 0, 0]
