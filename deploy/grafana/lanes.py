"""The rows of the lanes: how far they are, how quick, how full."""

from panels import Look, P, Panel, Row, quantiles, rate

GROUP_LAG = {"{{group}}": f"group:{P}group_lag_records:sum"}
BEHIND = {"{{group}}": f"group:{P}group_lag_seconds:max"}
TROUBLE = 'outcome=~"retried|dead_lettered"'

ROWS = [
    Row(
        "Overview",
        [
            Panel(
                "Behind",
                "Age of the first event that a group has not handled. Pages from 5 minutes.",
                "s",
                BEHIND,
                Look.NUMBER,
                4,
                warn=60,
                alarm=300,
            ),
            Panel("Lag", "Events that a group has not handled.", "short", GROUP_LAG, Look.NUMBER, 4),
            Panel(
                "Events",
                "Attempts at events, all handlers together.",
                "eps",
                {"events": f"sum(rate({P}events_total[$__rate_interval]))"},
                Look.NUMBER,
                4,
            ),
            Panel(
                "Error share",
                "Share of the attempts that end in a retry or a dead letter. A ticket from 5 %.",
                "percentunit",
                {"errors": f"sum(rate({P}events_total{{{TROUBLE}}}[10m])) / sum(rate({P}events_total[10m]))"},
                Look.NUMBER,
                4,
                warn=0.01,
                alarm=0.05,
            ),
            Panel(
                "Dead letters, 1 h",
                "Events that went to the dead-letter topic in the last hour.",
                "short",
                {"dead letters": f"sum(increase({P}dead_letters_total[1h]))"},
                Look.NUMBER,
                4,
                warn=1,
                alarm=10,
            ),
            Panel(
                "Members",
                "Workers in each group.",
                "short",
                {"{{group}}": f"group:{P}group_members:max"},
                Look.NUMBER,
                4,
            ),
        ],
    ),
    Row(
        "Traffic",
        [
            Panel(
                "Attempts by handler and outcome",
                "How attempts at events end.",
                "eps",
                {"{{handler}} {{outcome}}": rate("events_total", "handler", "outcome")},
                Look.STACKED,
            ),
            Panel(
                "Skipped, by reason",
                "Events that the rules give no effect, and why.",
                "eps",
                {"{{handler}} {{reason}}": rate("skipped_total", "handler", "reason")},
                Look.STACKED,
            ),
            Panel(
                "Requests by upstream and result",
                "Requests to Hindsight and Paperclip, and how they end.",
                "reqps",
                {"{{upstream}} {{result}}": rate("upstream_requests_total", "upstream", "result")},
                Look.STACKED,
            ),
        ],
    ),
    Row(
        "Latency",
        [
            Panel(
                "Age of events when they are done",
                "From Kafka's timestamp until the event is done with. For recalls this is how late the memories are.",
                "s",
                quantiles("event_age_seconds", "handler"),
            ),
            Panel(
                "Duration of an attempt",
                "How long one attempt of a handler takes.",
                "s",
                quantiles("event_duration_seconds", "handler"),
            ),
            Panel(
                "Duration of requests",
                "How long Hindsight and Paperclip take to answer.",
                "s",
                quantiles("upstream_request_duration_seconds", "upstream"),
            ),
            Panel(
                "Duration of Hindsight's operations, p95",
                "How long each kind of request to Hindsight takes.",
                "s",
                {
                    "{{operation}}": "histogram_quantile(0.95, sum by (operation, le) (rate("
                    f'{P}upstream_request_duration_seconds_bucket{{upstream="hindsight"}}[$__rate_interval])))'
                },
                width=24,
            ),
        ],
    ),
    Row(
        "Saturation",
        [
            Panel(
                "In flight",
                "Attempts that run now; the limits are recall_in_flight and retain_in_flight for each worker.",
                "short",
                {"{{lane}} {{instance}}": f"sum by (lane, instance) ({P}inflight_events)"},
            ),
            Panel(
                "Buffered",
                "Events delivered by Kafka that wait for their turn.",
                "short",
                {"{{lane}}": f"sum by (lane) ({P}buffered_events)"},
            ),
            Panel(
                "Parked",
                "Events that wait for their next attempt, and why.",
                "short",
                {"{{lane}} {{reason}}": f"sum by (lane, reason) ({P}parked_events)"},
                Look.STACKED,
            ),
            Panel(
                "Breakers",
                "1 while a lane starts nothing new because of an upstream. A ticket after 5 minutes.",
                "short",
                {"{{lane}} {{upstream}} {{reason}}": f"max by (lane, upstream, reason) ({P}breaker_open)"},
            ),
            Panel(
                "Paused partitions",
                "Partitions that are not fetched because enough of them is buffered.",
                "short",
                {"{{topic}}": f"sum by (topic) ({P}paused_partitions)"},
            ),
            Panel(
                "Oldest uncommitted",
                "Age of the oldest delivered event that is not committed.",
                "s",
                {"{{lane}}": f"max by (lane) ({P}oldest_uncommitted_seconds)"},
            ),
            Panel(
                "Rebalances",
                "Times that partitions came or went, in 15 minutes.",
                "short",
                {"{{lane}} {{kind}}": f"max by (lane, kind) (increase({P}rebalances_total[15m]))"},
            ),
            Panel(
                "Commits",
                "Commits by how they ended.",
                "cps",
                {"{{lane}} {{result}}": rate("commits_total", "lane", "result")},
            ),
            Panel(
                "Since the last poll and commit",
                "A poll older than a minute means a worker that hangs.",
                "s",
                {
                    "{{lane}} poll": f"time() - max by (lane) ({P}last_poll_timestamp_seconds)",
                    "{{lane}} commit": f"time() - max by (lane) ({P}last_commit_timestamp_seconds > 0)",
                },
            ),
            Panel(
                "Lost to retention and failed polls",
                "Events that retention removed before they were read, and polls that failed.",
                "short",
                {
                    "{{lane}} expired": f"sum by (lane) (increase({P}expired_records_total[1h]))",
                    "{{lane}} polls failed": f"sum by (lane) (increase({P}poll_failures_total[1h]))",
                },
                width=24,
            ),
        ],
    ),
    Row(
        "Partitions",
        [
            Panel(
                "Lag by partition",
                "One partition alone above the others: an event holds it up.",
                "short",
                {"{{topic}} {{partition}}": f"partition:{P}group_lag_records:max"},
                width=12,
            ),
            Panel(
                "Behind by partition",
                "Age of the first event that is not handled.",
                "s",
                {"{{topic}} {{partition}}": f"partition:{P}group_lag_seconds:max"},
                width=12,
            ),
            Panel(
                "Committed",
                "Events a second that each group gets done with.",
                "eps",
                {"{{group}}": f"sum by (group) (deriv(partition:{P}group_committed_offset:max[5m]))"},
            ),
            Panel(
                "Written",
                "Events a second that reach each topic.",
                "eps",
                {"{{topic}}": f"sum by (topic) (max by (topic, partition) (deriv({P}log_end_offset[5m])))"},
            ),
            Panel(
                "Held and without commit",
                "Partitions that workers hold, and those in which a group never committed.",
                "short",
                {
                    "{{topic}} held": f"sum by (topic) ({P}assigned_partitions)",
                    "{{topic}} without commit": f"max by (topic) ({P}group_partitions_without_commit)",
                },
            ),
        ],
    ),
]
