"""Names that were replaced, and must not come back: each stands beside the module that defined it and its successor.

A generic name (`ask`, `failed`, `look`) may well be right in another module, so only the successor is searched.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RENAMED = [
    # The engine.
    ("consumer/stream/core.py", "consumer/stream/scheduler.py", "LaneCore Verdict rewound start_over commits"),
    ("consumer/stream/core.py", "consumer/stream/scheduler.py", "committed _bury _acquit"),
    ("consumer/stream/core.py", "consumer/stream/dead_letter_writer.py", "in_words"),
    ("consumer/stream/work.py", "consumer/stream/executor.py", "Work pump bug _hold _tell _bury"),
    ("consumer/stream/jobs.py", "consumer/stream/executor.py", "Resolve"),
    ("consumer/stream/items.py", "consumer/stream/records.py", "Item suspect waits"),
    ("consumer/stream/offsets.py", "consumer/stream/offsets.py", "Completed ahead span"),
    ("consumer/stream/pressure.py", "consumer/stream/backpressure.py", "Pressure Limits span"),
    ("consumer/stream/breaker.py", "consumer/stream/breaker.py", "down failed succeeded refused unproven"),
    ("consumer/stream/signals.py", "consumer/stream/hooks.py", "Signal Notify Attempted Ending BreakerMoved Overtaken"),
    ("consumer/stream/signals.py", "consumer/stream/hooks.py", "Stuck SLOWED"),
    # Handlers and memory.
    ("consumer/handlers/needs.py", "consumer/handlers/context.py", "Needs Delivery"),
    ("consumer/handlers/outcomes.py", "consumer/handlers/results.py", "Outcome FailReason failed"),
    ("consumer/handlers/lookups.py", "consumer/handlers/lookups.py", "ask own_issue issue_of bank_user"),
    ("consumer/handlers/retain.py", "consumer/handlers/retain.py", "_Said _Place"),
    ("consumer/handlers/recall.py", "consumer/handlers/recall.py", "_Question"),
    ("consumer/handlers/forget.py", "consumer/handlers/forget.py", "_gone"),
    ("consumer/memory/identity.py", "consumer/memory/attribution.py", "user_of author_of"),
    ("consumer/memory/cleaning.py", "consumer/memory/sanitize.py", "mend clean blank"),
    ("consumer/memory/queries.py", "consumer/memory/recall_query.py", "query_of has_word halve"),
    ("consumer/memory/texts.py", "consumer/memory/formatting.py", "as_lines"),
    ("consumer/memory/banks.py", "consumer/memory/banks.py", "bank_of banks_of_company"),
    ("consumer/memory/rules.py", "consumer/memory/policy.py", "Rules"),
    ("consumer/evidence.py", "consumer/upstream_success.py", "collect answered"),
    ("consumer/recalls.py", "consumer/recalls.py", "TopicRecalls RecallMap shed"),
    # HTTP and Kafka.
    ("consumer/http.py", "consumer/http/transport.py", "Reply Send SendError Unreachable TimedOut Broken segment"),
    ("consumer/rest.py", "consumer/http/rest_client.py", "Rest"),
    ("consumer/kafka.py", "consumer/kafka/options.py", "reader reaching_kafka"),
    ("consumer/publisher.py", "consumer/kafka/producer.py", "TooLarge"),
    # Relay, reconcile and dead letters.
    ("consumer/relay/copies.py", "consumer/relay/enrichment.py", "Copies announce"),
    (
        "consumer/relay/envelopes.py",
        "consumer/relay/event_builder.py",
        "Announcement of_activity of_comment of_vanished",
    ),
    ("consumer/relay/envelopes.py", "consumer/relay/event_builder.py", "of_vanished of_run"),
    ("consumer/relay/outbox.py", "consumer/relay/publisher.py", "Outbox knows"),
    ("consumer/relay/hints.py", "consumer/relay/websocket.py", "Hints Wake"),
    ("consumer/relay/issues.py", "consumer/relay/assignee_history.py", "IssueThen Assignees"),
    ("consumer/relay/comments.py", "consumer/relay/comment_poller.py", "CommentFeed look thorough Looked"),
    ("consumer/relay/company.py", "consumer/relay/company_follower.py", "Company"),
    ("consumer/relay/relay.py", "consumer/relay/relay.py", "Plan"),
    ("consumer/relay/signals.py", "consumer/relay/hooks.py", "Told Moved"),
    ("consumer/relay/times.py", "schemas/timestamps.py", "instant iso"),
    ("consumer/letters/letter.py", "consumer/dead_letters/model.py", "Letter obstacle revived_headers"),
    ("consumer/relay/findings.py", "consumer/reconcile/findings.py", "judge Held Subject Work DOUBLED LEFT_OVER"),
    ("consumer/relay/expected.py", "consumer/reconcile/expected.py", "Place"),
    # Tools.
    ("consumer/tools/desk.py", "consumer/tools/dispatcher.py", "Desk Visit enter Work"),
    ("consumer/tools/admission.py", "consumer/tools/middleware.py", "Admission legible"),
    ("consumer/tools/callers.py", "consumer/tools/authenticator.py", "Callers AsCaller"),
    ("consumer/tools/identity.py", "consumer/tools/credentials.py", "Refused words spoken_for"),
    ("consumer/tools/answers.py", "consumer/tools/results.py", "Answer late"),
    ("consumer/tools/places.py", "consumer/tools/bank_resolver.py", "Places Place CallRun"),
    ("consumer/tools/service.py", "consumer/tools/service.py", "Memories"),
    ("consumer/tools/connect.py", "consumer/tools/registration.py", "Connect"),
    # Exporter, observability and commands.
    ("consumer/exporter/watch.py", "consumer/exporter/poller.py", "Lookout"),
    ("consumer/exporter/snapshot.py", "consumer/exporter/snapshot.py", "HindsightSeen KafkaSeen Outcome"),
    ("consumer/exporter/kafka_source.py", "consumer/exporter/kafka_source.py", "KafkaWatch"),
    ("consumer/exporter/hindsight_source.py", "consumer/exporter/hindsight_source.py", "HindsightWatch"),
    ("consumer/exporter/lag.py", "consumer/exporter/lag.py", "Log unread"),
    ("consumer/observability/lanes.py", "consumer/observability/lane_gauges.py", "Pulse Seen"),
    ("consumer/observability/logs.py", "consumer/observability/logs.py", "OncePerKind"),
    ("consumer/migration/plugin.py", "consumer/settings/plugin_import.py", "is_ours"),
    ("consumer/app_process.py", "consumer/commands/runtime.py", "observed until_told last_resort secret"),
    ("consumer/app_repair.py", "consumer/commands/audit.py", "say"),
    ("consumer/progress.py", "consumer/commands/progress.py", "showing"),
]

RENAMED_IN_TESTS = {
    "tests": "office plant site paper Paper Post Shelf World Rig Desk settle dice Mood",
    "benchmarks": "stand subjects Subject Line contest Desk dice settle",
}


def definitions(path: Path) -> set[str]:
    """Names of the functions, classes, fields, attributes and module variables that a module defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    local = {name for function in functions for name in ast.walk(function) if isinstance(name, ast.Name)}
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) if node not in local:
                names.add(name)
    return names


@pytest.mark.parametrize(("before", "now", "names"), RENAMED)
def test_a_replaced_name_is_not_defined_where_it_was_nor_in_its_successor(before: str, now: str, names: str) -> None:
    assert (ROOT / now).is_file()
    modules = {path for path in (ROOT / before, ROOT / now) if path.is_file()}
    assert {name for path in modules for name in definitions(path)} & set(names.split()) == set()


@pytest.mark.parametrize(("folder", "names"), RENAMED_IN_TESTS.items())
def test_a_replaced_name_of_a_test_helper_is_defined_nowhere(folder: str, names: str) -> None:
    replaced = set(names.split())
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    assert {str(path.relative_to(ROOT)): path.stem for path in paths if path.stem in replaced} == {}
    found = {str(path.relative_to(ROOT)): sorted(replaced & definitions(path)) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}
