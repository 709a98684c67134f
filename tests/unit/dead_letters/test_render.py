"""Printed dead letters: their texts come from whoever may write to the topic."""

from rich.console import Console

from consumer.dead_letters.model import DeadLetter, parse_dead_letter
from consumer.dead_letters.redrive import RedriveResult
from consumer.dead_letters.render import redrive_text, render_table
from tests.unit.dead_letters.test_model import record

HOSTILE = "[/x] [red]\x1b[2J\x1b]0;title\x07\u202e\x9b1A\r\n"


def hostile() -> DeadLetter:
    names = ("topic", "reason", "error", "event-id", "event-type")
    letter = parse_dead_letter(record(facts=dict.fromkeys(names, HOSTILE)))
    assert letter is not None
    return letter


def test_the_table_shows_markup_as_text_and_no_control_characters() -> None:
    console = Console(width=300)
    with console.capture() as capture:
        console.print(render_table([hostile()]))
    output = capture.get()
    assert "[/x] [red]" in output
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(output)


def test_the_result_of_a_redrive_has_one_line_for_each_refusal_and_no_control_characters() -> None:
    letter = hostile()
    output = redrive_text(RedriveResult(refused=[(letter, HOSTILE)], failed=HOSTILE), [letter], dry_run=False)
    assert len(output.splitlines()) == 3
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(output)
