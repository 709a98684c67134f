"""A record as the engine sees it."""

import pytest

from consumer.stream.records import Record


def made(headers: tuple[tuple[str, bytes | None], ...]) -> Record:
    return Record("t", 0, 0, 0, b"key", b"value", headers)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ((), None),
        ((("other", b"1"),), None),
        ((("repair", b"1"),), "1"),
        ((("repair", b"1"), ("repair", b"2"), ("other", b"3")), "2"),
        ((("repair", b""),), ""),
        ((("repair", None),), None),
        ((("repair", b"\xff"),), "�"),
    ],
)
def test_header_returns_the_last_of_its_name(headers: tuple[tuple[str, bytes | None], ...], text: str | None) -> None:
    assert made(headers).header("repair") == text


def test_the_size_of_a_record_covers_key_value_and_headers() -> None:
    assert made((("name", b"12"), ("none", None))).size == len(b"key") + len(b"value") + len("name12none")
    assert Record("t", 0, 0, 0, None, None).size == 0
