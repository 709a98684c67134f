"""The rows of the lanes: lag, latency, saturation."""

from deploy.grafana.panels import Look, P, Panel, Row, quantiles, rate

GROUP_LAG = {"{{group}}": f"group:{P}group_lag_records:sum"}
BEHIND = {"{{group}}": f"group:{P}group_lag_seconds:max"}
TROUBLE = 'outcome=~"retried|dead_lettered"'

ROWS = [
    Row(
        "Overview",
        [
            Panel(
                "Behind",
                "Age of the oldest event that a group has not handled. Pages at 5 minutes.",
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
                "Attempts of all handlers per second.",
                "eps",
                {"events": f"sum(rate({P}events_total[$__rate_interval]))"},
                Look.NUMBER,
                4,
            ),
            Panel(
                "Error share",
                "Share of attempts that end in a retry or a dead letter. Opens a ticket at 5 %.",
                "percentunit",
                {"errors": f"sum(rate({P}events_total{{{TROUBLE}}}[10m])) / sum(rate({P}events_total[10m]))"},
                Look.NUMBER,
                4,
                warn=0.01,
                alarm=0.05,
            ),
            Panel(
                "Dead letters, 1 h",
                "Events moved to the dead-letter topic in the last hour.",
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
                "Attempts to handle an event, by outcome.",
                "eps",
                {"{{handler}} {{outcome}}": rate("events_total", "handler", "outcome")},
                Look.STACKED,
            ),
            Panel(
                "Skipped, by reason",
                "Events skipped by a rule.",
                "eps",
                {"{{handler}} {{reason}}": rate("skipped_total", "handler", "reason")},
                Look.STACKED,
            ),
            Panel(
                "Requests by upstream and result",
                "Requests to Hindsight and Paperclip by result.",
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
                "Age of events when finished",
                "From Kafka's timestamp until the event is finished. For recalls: how late the memories are.",
                "s",
                quantiles("event_age_seconds", "handler"),
            ),
            Panel(
                "Duration of an attempt",
                "Duration of one attempt of a handler.",
                "s",
                quantiles("event_duration_seconds", "handler"),
            ),
            Panel(
                "Duration of requests",
                "Response times of Hindsight and Paperclip.",
                "s",
                quantiles("upstream_request_duration_seconds", "upstream"),
            ),
            Panel(
                "Duration of Hindsight's operations, p95",
                "Response time of each kind of request to Hindsight.",
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
                "Attempts in progress; each worker is limited by recall_in_flight and retain_in_flight.",
                "short",
                {"{{lane}} {{instance}}": f"sum by (lane, instance) ({P}inflight_events)"},
            ),
            Panel(
                "Buffered",
                "Events delivered by Kafka and waiting to be started.",
                "short",
                {"{{lane}}": f"sum by (lane) ({P}buffered_events)"},
            ),
            Panel(
                "Parked",
                "Events waiting for their next attempt, by reason.",
                "short",
                {"{{lane}} {{reason}}": f"sum by (lane, reason) ({P}parked_events)"},
                Look.STACKED,
            ),
            Panel(
                "Breakers",
                "1 while a lane starts no new events because of an upstream. Opens a ticket after 5 minutes.",
                "short",
                {"{{lane}} {{upstream}} {{reason}}": f"max by (lane, upstream, reason) ({P}breaker_open)"},
            ),
            Panel(
                "Paused partitions",
                "Partitions paused because enough of their events are buffered.",
                "short",
                {"{{topic}}": f"sum by (topic) ({P}paused_partitions)"},
            ),
            Panel(
                "Oldest uncommitted",
                "Age of the oldest event that is delivered but not committed.",
                "s",
                {"{{lane}}": f"max by (lane) ({P}oldest_uncommitted_seconds)"},
            ),
            Panel(
                "Rebalances",
                "Changes of the assignment within 15 minutes.",
                "short",
                {"{{lane}} {{kind}}": f"max by (lane, kind) (increase({P}rebalances_total[15m]))"},
            ),
            Panel(
                "Commits",
                "Offset commits by result.",
                "cps",
                {"{{lane}} {{result}}": rate("commits_total", "lane", "result")},
            ),
            Panel(
                "Since the last poll and commit",
                "A worker whose last poll is older than a minute hangs.",
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
                "If one partition stands out, an event is blocking it.",
                "short",
                {"{{topic}} {{partition}}": f"partition:{P}group_lag_records:max"},
                width=12,
            ),
            Panel(
                "Behind by partition",
                "Age of the oldest event that is not handled.",
                "s",
                {"{{topic}} {{partition}}": f"partition:{P}group_lag_seconds:max"},
                width=12,
            ),
            Panel(
                "Committed",
                "Events per second that each group finishes.",
                "eps",
                {"{{group}}": f"sum by (group) (deriv(partition:{P}group_committed_offset:max[5m]))"},
            ),
            Panel(
                "Written",
                "Events per second written to each topic.",
                "eps",
                {"{{topic}}": f"sum by (topic) (max by (topic, partition) (deriv({P}log_end_offset[5m])))"},
            ),
            Panel(
                "Assigned and without commit",
                "Partitions assigned to workers, and partitions in which a group has never committed.",
                "short",
                {
                    "{{topic}} assigned": f"sum by (topic) ({P}assigned_partitions)",
                    "{{topic}} without commit": f"max by (topic) ({P}group_partitions_without_commit)",
                },
            ),
        ],
    ),
]
