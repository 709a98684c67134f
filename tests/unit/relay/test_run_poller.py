"""Polling runs: the events of started and ended ones, also of those that the list no longer holds."""

import pytest

from consumer.relay import run_poller as module
from consumer.relay.checkpoints import RunPosition
from consumer.relay.enrichment import FRESH
from consumer.relay.hooks import Notice
from schemas.timestamps import format_timestamp
from tests.support.fake_feed import FORBIDDEN, NOON
from tests.unit.relay.harness import RelayHarness

STARTED, FINISHED, FAILED, CANCELLED = (f"agent.run.{end}" for end in ("started", "finished", "failed", "cancelled"))


@pytest.fixture
def relay() -> RelayHarness:
    return RelayHarness()


@pytest.fixture
def agent(relay: RelayHarness) -> str:
    return relay.feed.agent_ids[0]


async def test_run_that_starts_and_later_ends_is_published_twice(relay: RelayHarness, agent: str) -> None:
    run = relay.feed.start_run(agent)
    await relay.poll_runs()
    assert relay.run_position.open == (run,)
    relay.feed.advance(5)
    relay.feed.end_run(run)
    await relay.poll_runs()
    assert relay.publisher.published == [(STARTED, run), (FINISHED, run)]
    assert relay.run_position == RunPosition(created=NOON, open=())


async def test_run_that_failed_between_two_polls_is_published_as_started_and_failed(
    relay: RelayHarness, agent: str
) -> None:
    run = relay.feed.start_run(agent)
    relay.feed.end_run(run, "failed", "exit code 3")
    await relay.poll_runs()
    started, failed = relay.publisher.events
    assert (started.type, failed.type) == (STARTED, FAILED)
    assert (started.envelope["payload"]["status"], started.envelope["payload"]["error"]) == ("running", None)
    assert failed.envelope["payload"]["error"] == "exit code 3"


async def test_killed_run_is_published_as_finished_and_then_cancelled(relay: RelayHarness, agent: str) -> None:
    """Its process ends, and Paperclip announces that, before it announces the cancellation."""
    run = relay.feed.start_run(agent)
    await relay.poll_runs()
    relay.feed.end_run(run, "cancelled")
    relay.feed.end_statuses[run] = ["succeeded"]
    await relay.poll_runs()
    await relay.poll_runs()
    assert relay.publisher.published == [(STARTED, run), (FINISHED, run), (CANCELLED, run)]
    assert relay.feed.calls["run_end_statuses"] == 1


async def test_run_cancelled_while_queued_is_published_as_cancelled_only(relay: RelayHarness, agent: str) -> None:
    run = relay.feed.start_run(agent, status="queued")
    await relay.poll_runs()
    relay.feed.end_run(run, "cancelled")
    await relay.poll_runs()
    assert relay.publisher.published == [(CANCELLED, run)]


async def test_run_cancelled_after_it_was_read_as_succeeded_is_published_as_both(
    relay: RelayHarness, agent: str
) -> None:
    run = relay.feed.start_run(agent)
    relay.feed.end_run(run)
    await relay.poll_runs()
    relay.feed.advance(1)
    relay.feed.end_run(run, "cancelled")
    await relay.poll_runs()
    assert relay.publisher.published == [(STARTED, run), (FINISHED, run), (CANCELLED, run)]


async def test_of_runs_begun_before_the_start_only_a_later_end_is_published() -> None:
    relay = RelayHarness(start=NOON + 60)
    agent = relay.feed.agent_ids[0]
    ended, running = relay.feed.start_run(agent), relay.feed.start_run(agent)
    relay.feed.end_run(ended)
    relay.feed.advance(90)
    relay.feed.end_run(running)
    await relay.poll_runs()
    assert relay.publisher.published == [(FINISHED, running)]


async def test_refused_run_is_a_notice_and_does_not_hold_up_other_runs(relay: RelayHarness, agent: str) -> None:
    run = relay.feed.start_run(agent)
    relay.feed.failures["run_json"].append(FORBIDDEN)
    await relay.poll_runs("84f04695-b2f5-472e-9096-5cfbd079d332")
    assert relay.publisher.published == [(STARTED, run)]
    assert relay.notices == ["skipping a run that cannot be read"]


async def test_cancelled_run_whose_log_is_refused_does_not_hold_up_other_runs(relay: RelayHarness, agent: str) -> None:
    relay.feed.end_run(relay.feed.start_run(agent), "cancelled")
    run = relay.feed.start_run(agent)
    relay.feed.failures["run_end_statuses"].append(FORBIDDEN)
    await relay.poll_runs()
    assert relay.publisher.published == [(STARTED, run)]
    assert relay.notices == ["skipping a run that cannot be read"]


async def test_listed_run_whose_id_is_not_a_uuid_is_ignored(relay: RelayHarness, agent: str) -> None:
    """It would not fit the checkpoint, and Paperclip could not be asked for it."""
    run = relay.feed.start_run(agent)
    relay.feed.runs_by_id["odd"] = relay.feed.runs_by_id[run] | {"id": "odd"}
    await relay.poll_runs()
    assert relay.publisher.published == [(STARTED, run)]
    assert relay.run_position.open == (run,)


async def test_poll_after_many_runs_reads_one_page_again_and_a_sweep_reads_all(relay: RelayHarness, agent: str) -> None:
    """Nothing new has happened: only a full sweep looks for changes of all runs of the last ten minutes."""
    runs = []
    for _ in range(4 * module.PAGE):
        relay.feed.advance(0.5)
        runs.append(relay.feed.start_run(agent))
    await relay.poll_runs()
    assert [key for _, key in relay.publisher.published] == runs
    relay.feed.calls.clear()
    await relay.poll_runs(full_sweep=False)
    assert relay.feed.calls == {"runs": 1}
    relay.feed.end_run(runs[0])
    await relay.poll_runs()
    assert (FINISHED, runs[0]) in relay.publisher.published


async def test_poll_reads_beyond_the_page_if_all_of_its_runs_are_new(relay: RelayHarness, agent: str) -> None:
    await relay.poll_runs()
    runs = []
    for _ in range(2 * module.PAGE):
        relay.feed.advance(0.5)
        runs.append(relay.feed.start_run(agent))
    await relay.poll_runs(full_sweep=False)
    assert [key for _, key in relay.publisher.published] == runs


class TestUnlistedRuns:
    """Open runs that have fallen out of the list."""

    @pytest.fixture
    def relay(self, monkeypatch: pytest.MonkeyPatch) -> RelayHarness:
        monkeypatch.setattr(module, "PAGE", 2)
        monkeypatch.setattr(module, "LONGEST_LIST", 2)
        return RelayHarness()

    async def add_unlisted(self, relay: RelayHarness, number: int = 1) -> list[str]:
        """Ended runs, known as open, behind a list of newer known ones."""
        runs = [relay.feed.start_run(relay.feed.agent_ids[0]) for _ in range(number)]
        for _ in range(2):
            relay.feed.advance(1)
            relay.feed.end_run(relay.feed.start_run(relay.feed.agent_ids[1]))
        relay.run_position = RunPosition(created=relay.feed.now + module.OVERLAP, open=tuple(runs))
        await relay.poll_runs(full_sweep=False)
        assert relay.run_position.open == tuple(runs)
        for run in runs:
            relay.feed.end_run(run)
        return runs

    async def test_full_sweep_publishes_its_end(self, relay: RelayHarness) -> None:
        (run,) = await self.add_unlisted(relay)
        await relay.poll_runs(full_sweep=False)
        assert (FINISHED, run) not in relay.publisher.published
        await relay.poll_runs()
        assert (FINISHED, run) in relay.publisher.published
        assert not relay.run_position.open

    async def test_reported_change_publishes_its_end_without_a_sweep(self, relay: RelayHarness) -> None:
        (run,) = await self.add_unlisted(relay)
        await relay.poll_runs(run, full_sweep=False)
        assert (FINISHED, run) in relay.publisher.published

    async def test_run_that_paperclip_no_longer_has_is_not_open(self, relay: RelayHarness) -> None:
        (run,) = await self.add_unlisted(relay)
        del relay.feed.runs_by_id[run]
        await relay.poll_runs()
        assert not relay.run_position.open

    async def test_each_full_sweep_asks_for_the_next_run(
        self, relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "UNLISTED_PER_SWEEP", 1)
        runs = await self.add_unlisted(relay, 3)
        ended = []
        for _ in range(3):
            await relay.poll_runs()
            ended.append(sum((FINISHED, run) in relay.publisher.published for run in runs))
        assert ended == [1, 2, 3]

    async def test_more_runs_than_one_list_holds_are_read_agent_by_agent(self, relay: RelayHarness) -> None:
        runs = []
        for _ in range(2):
            for agent in relay.feed.agent_ids:
                relay.feed.advance(1)
                runs.append(relay.feed.start_run(agent))
        await relay.poll_runs()
        assert [key for _, key in relay.publisher.published] == runs

    async def test_more_runs_of_an_agent_than_a_list_holds_is_a_notice(self, relay: RelayHarness) -> None:
        for _ in range(5):
            relay.feed.advance(1)
            relay.feed.start_run(relay.feed.agent_ids[0])
        await relay.poll_runs()
        (lost,) = (event for event in relay.reported if isinstance(event, Notice))
        assert "runs are lost" in lost.message
        assert (lost.fields["agent"], lost.fields["from"]) == (relay.feed.agent_ids[0], format_timestamp(NOON))
        await relay.poll_runs()
        assert len(relay.notices) == 1  # the sweep reads known runs again


async def test_checkpoint_names_a_limited_number_of_open_runs(
    relay: RelayHarness, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that outgrew its topic would stop the relay."""
    monkeypatch.setattr(module, "MAX_OPEN", 3)
    runs = []
    for _ in range(5):
        relay.feed.advance(1)
        runs.append(relay.feed.start_run(agent))
    await relay.poll_runs()
    assert relay.run_position.open == tuple(runs[-3:])
    assert relay.notices == ["too many open runs: the end of the oldest is not published"]


class TestEmbeddedObjects:
    """What a started run carries, so that its handler can recall without a request."""

    async def test_wake_that_paperclip_has_not_written_is_put_together(self, relay: RelayHarness, agent: str) -> None:
        issue = relay.feed.add_issue("Ship it")
        comment = relay.feed.add_comment(issue, "Mind the cookies.")
        relay.feed.start_run(agent, issue, wakeCommentIds=[comment])
        await relay.poll_runs()
        (started,) = relay.publisher.events
        wake = started.embedded["run"]["contextSnapshot"]["paperclipWake"]
        assert (wake["issue"]["title"], wake["issue"]["description"]) == ("Ship it", "All of it.")
        assert [comment["body"] for comment in wake["comments"]] == ["Mind the cookies."]

    async def test_wake_that_paperclip_has_written_is_embedded_without_a_request(
        self, relay: RelayHarness, agent: str
    ) -> None:
        wake = {"issue": {"title": "Ship it"}, "comments": []}
        relay.feed.start_run(agent, relay.feed.add_issue(), paperclipWake=wake)
        await relay.poll_runs()
        assert relay.publisher.events[0].embedded["run"]["contextSnapshot"]["paperclipWake"] == wake
        assert relay.feed.calls["issue_json"] == 0

    async def test_issue_is_embedded_where_banks_depend_on_its_user(self) -> None:
        relay = RelayHarness(every_issue=True)
        wake = {"issue": {"title": "Ship it"}, "comments": []}
        relay.feed.start_run(relay.feed.agent_ids[0], relay.feed.add_issue(), paperclipWake=wake)
        await relay.poll_runs()
        assert relay.publisher.events[0].embedded["issue"]["description"] == "All of it."

    async def test_old_run_and_run_without_an_issue_embed_nothing(self, relay: RelayHarness, agent: str) -> None:
        relay.feed.start_run(agent)
        relay.feed.start_run(agent, relay.feed.add_issue())
        relay.feed.advance(FRESH)
        await relay.poll_runs()
        assert [dict(event.embedded) for event in relay.publisher.events] == [{}, {}]
        assert relay.feed.calls["run_json"] == 0

    async def test_run_whose_issue_is_not_an_id_is_published_without_a_request(
        self, relay: RelayHarness, agent: str
    ) -> None:
        relay.feed.start_run(agent, "PAP-12")
        await relay.poll_runs()
        (event,) = relay.publisher.events
        assert (event.envelope["payload"]["issueId"], dict(event.embedded)) == ("PAP-12", {})
        assert (relay.feed.calls["run_json"], relay.notices) == (0, [])
