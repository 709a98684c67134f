"""The rows of everything around the lanes: Hindsight, tools, relay, dead letters, exporters."""

from deploy.grafana.panels import Look, P, Panel, Row, quantiles, rate

ROWS = [
    Row(
        "Hindsight",
        [
            Panel(
                "Queue by status",
                "Hindsight's asynchronous operations: accepted, but not processed yet.",
                "short",
                {"{{status}}": f"status:{P}hindsight_queue_depth:max"},
            ),
            Panel(
                "Pending by type",
                "Operations pending in Hindsight's queue.",
                "short",
                {"{{operation_type}}": f'max by (operation_type) ({P}hindsight_queue_depth{{status="pending"}})'},
                Look.STACKED,
            ),
            Panel(
                "Age of the oldest operation",
                "Oldest unfinished operation in the inspected banks. Opens a ticket at one hour.",
                "s",
                {"oldest": f"cluster:{P}hindsight_oldest_pending_seconds:max"},
            ),
            Panel(
                "Consolidation backlog",
                "Memories waiting for consolidation, and memories whose consolidation failed.",
                "short",
                {
                    "waiting": f"cluster:{P}hindsight_consolidation_backlog:max",
                    "failed": f"max({P}hindsight_consolidation_failed)",
                },
            ),
            Panel(
                "Slope of the backlog",
                "Growth of the backlog in memories per minute; below 0 it shrinks.",
                "cpm",
                {"slope": f"60 * deriv(cluster:{P}hindsight_consolidation_backlog:max[15m])"},
            ),
            Panel(
                "Banks",
                "Banks in Hindsight, and how many of them the exporter inspects.",
                "short",
                {
                    "all": f"max({P}hindsight_banks_known)",
                    "inspected": f"max({P}hindsight_banks_observed)",
                },
            ),
        ],
    ),
    Row(
        "Tools",
        [
            Panel(
                "Calls by tool and outcome",
                "Tool calls by agents, by outcome.",
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
                "Failed, denied and limited",
                "Calls that failed, that were refused, or that exceeded the limits of an agent or company.",
                "reqps",
                {"{{outcome}}": rate("tool_calls_total", "outcome", where='{outcome=~"failed|denied|limited"}')},
            ),
        ],
    ),
    Row(
        "Relay",
        [
            Panel(
                "Published",
                "Paperclip events that Kafka has acknowledged.",
                "eps",
                {"{{topic}}": rate("relay_published_total", "topic")},
            ),
            Panel(
                "Behind Paperclip",
                "Time since the furthest-behind company was fully read. Pages at 5 minutes.",
                "s",
                {"{{topic}}": f"max by (topic) ({P}relay_lag_seconds)"},
            ),
            Panel(
                "Companies",
                "Companies that the relay follows, by state.",
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
                "Events moved to the dead-letter topic within 15 minutes.",
                "short",
                {"{{handler}} {{reason}}": f"sum by (handler, reason) (increase({P}dead_letters_total[15m]))"},
                Look.STACKED,
                12,
            ),
            Panel(
                "In the topic",
                "Records in the dead-letter topic, including the markers of redriven ones.",
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
                "Time since a source last answered an exporter. Pages at 3 minutes for Kafka.",
                "s",
                {"{{source}} {{instance}}": f"time() - max by (source, instance) ({P}snapshot_timestamp_seconds > 0)"},
                width=6,
            ),
            Panel(
                "Answers",
                "1 if the source answered the last request.",
                "short",
                {"{{source}} {{instance}}": f"min by (source, instance) ({P}collect_success)"},
                width=6,
            ),
            Panel(
                "Duration of a read",
                "How long reading a source takes.",
                "s",
                {"{{source}}": f"max by (source) ({P}collect_duration_seconds)"},
                width=6,
            ),
            Panel(
                "State of the groups",
                "1 for the current state of a group.",
                "short",
                {"{{group}} {{state}}": f"max by (group, state) ({P}group_state) > 0"},
                width=6,
            ),
            Panel(
                "Versions",
                "Processes by running version.",
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
