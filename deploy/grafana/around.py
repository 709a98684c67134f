"""The rows of what is around the lanes: Hindsight, tools, relay, dead letters, exporters."""

from panels import Look, P, Panel, Row, quantiles, rate

ROWS = [
    Row(
        "Hindsight",
        [
            Panel(
                "Queue by status",
                "Hindsight's asynchronous operations: accepted, and not digested yet.",
                "short",
                {"{{status}}": f"status:{P}hindsight_queue_depth:max"},
            ),
            Panel(
                "Pending by type",
                "What waits in Hindsight's queue.",
                "short",
                {"{{operation_type}}": f'max by (operation_type) ({P}hindsight_queue_depth{{status="pending"}})'},
                Look.STACKED,
            ),
            Panel(
                "Age of the oldest operation",
                "The oldest that is not over, in the banks looked into. A ticket from an hour.",
                "s",
                {"oldest": f"cluster:{P}hindsight_oldest_pending_seconds:max"},
            ),
            Panel(
                "Consolidation backlog",
                "Memories that wait for consolidation, and those for which it failed.",
                "short",
                {
                    "waiting": f"cluster:{P}hindsight_consolidation_backlog:max",
                    "failed": f"max({P}hindsight_consolidation_failed)",
                },
            ),
            Panel(
                "Slope of the backlog",
                "Memories a minute by which the backlog grows; below 0 it shrinks.",
                "cpm",
                {"slope": f"60 * deriv(cluster:{P}hindsight_consolidation_backlog:max[15m])"},
            ),
            Panel(
                "Banks",
                "How many banks there are, and into how many the exporter looks for the age.",
                "short",
                {
                    "known": f"max({P}hindsight_banks_known)",
                    "looked into": f"max({P}hindsight_banks_observed)",
                },
            ),
        ],
    ),
    Row(
        "Tools",
        [
            Panel(
                "Calls by tool and outcome",
                "What agents ask of the tools.",
                "reqps",
                {"{{tool}} {{outcome}}": rate("tool_calls_total", "tool", "outcome")},
                Look.STACKED,
            ),
            Panel(
                "Duration of calls",
                "Paperclip's gateway gives up after 10 s.",
                "s",
                quantiles("tool_call_duration_seconds", "tool"),
            ),
            Panel(
                "Failed and denied",
                "Calls that were answered with a failure, or whose caller could not prove who it is.",
                "reqps",
                {"{{outcome}}": rate("tool_calls_total", "outcome", where='{outcome=~"failed|denied"}')},
            ),
        ],
    ),
    Row(
        "Relay",
        [
            Panel(
                "Published",
                "Events of Paperclip that reached Kafka.",
                "eps",
                {"{{topic}}": rate("relay_published_total", "topic")},
            ),
            Panel(
                "Behind Paperclip",
                "How long ago all that Paperclip had was read last. Pages from 5 minutes.",
                "s",
                {"{{topic}}": f"max by (topic) ({P}relay_lag_seconds)"},
            ),
            Panel(
                "Companies",
                "Companies that are followed, by how that goes.",
                "short",
                {"{{state}}": f"max by (state) ({P}relay_companies)"},
                Look.STACKED,
            ),
        ],
    ),
    Row(
        "Dead letters",
        [
            Panel(
                "New, by handler and reason",
                "Events that went to the dead-letter topic, in 15 minutes.",
                "short",
                {"{{handler}} {{reason}}": f"sum by (handler, reason) (increase({P}dead_letters_total[15m]))"},
                Look.STACKED,
                12,
            ),
            Panel(
                "In the topic",
                "Records in the dead-letter topic, with the notes of what was sent back.",
                "short",
                {"{{topic}}": f"topic:{P}dead_letter_depth_records:max"},
                width=12,
            ),
        ],
    ),
    Row(
        "Exporter health",
        [
            Panel(
                "Age of the snapshots",
                "Since a source last answered an exporter. Pages from 3 minutes for Kafka.",
                "s",
                {"{{source}} {{instance}}": f"time() - max by (source, instance) ({P}snapshot_timestamp_seconds > 0)"},
                width=6,
            ),
            Panel(
                "Answers",
                "1 if the source answered when it was last asked.",
                "short",
                {"{{source}} {{instance}}": f"min by (source, instance) ({P}collect_success)"},
                width=6,
            ),
            Panel(
                "Duration of a look",
                "How long it takes to ask a source.",
                "s",
                {"{{source}}": f"max by (source) ({P}collect_duration_seconds)"},
                width=6,
            ),
            Panel(
                "State of the groups",
                "1 for the state that a group is in.",
                "short",
                {"{{group}} {{state}}": f"max by (group, state) ({P}group_state) > 0"},
                width=6,
            ),
            Panel(
                "Versions",
                "Processes by the version that they run.",
                "short",
                {"{{version}}": f"sum by (version) ({P}build_info)"},
                width=12,
            ),
            Panel(
                "Memory",
                "Resident memory of each process.",
                "bytes",
                {"{{instance}}": 'process_resident_memory_bytes{job="paperclip-memory"}'},
                width=12,
            ),
        ],
    ),
]
