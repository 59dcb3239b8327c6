"""Views for dashboards and other people's queries; docs/database.md describes them."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_CAMPAIGN_STATE = """
SELECT campaign.id AS campaign, campaign.label, campaign.started, host.hostname, host.kernel,
       host.qemu, host.fio, max(run.started) AS last_run, max(run.round) AS rounds,
       count(DISTINCT run.cell) AS cells, count(*) - count(run.failure_kind) AS measured,
       count(run.failure_kind) AS failed, sum(run.wall_seconds) AS wall_seconds
FROM campaign
JOIN host ON host.key = campaign.host
JOIN run ON run.campaign = campaign.key
GROUP BY campaign.id, campaign.label, campaign.started, host.hostname, host.kernel, host.qemu,
         host.fio
"""

_RESULT = """
SELECT campaign.id AS campaign, campaign.started AS campaign_started, host.hostname, run.id AS run,
       run.path, run.page_cache, run.round, run.started, run.emulated, measurement.name,
       measurement.program, sample.direction, sample.metric, metric.unit, metric.better,
       sample.value
FROM sample
JOIN metric ON metric.name = sample.metric
JOIN measurement ON measurement.key = sample.measurement
JOIN run ON run.key = measurement.run
JOIN campaign ON campaign.key = run.campaign
JOIN host ON host.key = campaign.host
WHERE run.failure_kind IS NULL
"""

# Neither SQLite nor PostgreSQL has a median that the other one knows.
_CELL_MEDIAN = """
SELECT campaign, campaign_started, hostname, path, page_cache, name, direction, metric, unit,
       better, count(*) AS rounds, min(value) AS least, max(value) AS most,
       avg(CASE WHEN 2 * place BETWEEN n AND n + 2 THEN value END) AS median
FROM (SELECT result.*, row_number() OVER (cell ORDER BY value) AS place, count(*) OVER cell AS n
      FROM result
      WINDOW cell AS (PARTITION BY campaign, path, page_cache, name, direction, metric)) AS placed
GROUP BY campaign, campaign_started, hostname, path, page_cache, name, direction, metric, unit,
         better
"""

_FAILED_RUN = """
SELECT campaign.id AS campaign, host.hostname, run.id AS run, run.path, run.page_cache, run.round,
       run.started, run.failure_kind, run.failure_message
FROM run
JOIN campaign ON campaign.key = run.campaign
JOIN host ON host.key = campaign.host
WHERE run.failure_kind IS NOT NULL
"""

_OVER_TIME = """
SELECT campaign.id AS campaign, run.id AS run, run.path, run.page_cache, run.round,
       measurement.name, series.metric, series.direction, measurement.started,
       {second} AS second, {point} AS value
FROM series
JOIN measurement ON measurement.key = series.measurement
JOIN run ON run.key = measurement.run
JOIN campaign ON campaign.key = run.campaign
CROSS JOIN {points}
WHERE run.failure_kind IS NULL
"""

_CRASH_VERDICT = """
SELECT power_cut.id AS power_cut, host.hostname, power_cut.path, power_cut.client,
       power_cut.access, power_cut.started, power_cut.survives, power_cut.states,
       power_cut.possible, power_cut.claim, power_cut.failure
FROM power_cut
JOIN host ON host.key = power_cut.host
"""


def upgrade() -> None:
    """Creates the views. Each second of a series is a row, which both databases write their way."""
    if op.get_bind().dialect.name == "sqlite":
        second, point = "json_each.key * series.interval_seconds", "json_each.value"
        points = "json_each(series.points)"
    else:
        second, point = "(each.place - 1) * series.interval_seconds", "each.point::float8"
        points = "json_array_elements_text(series.points) WITH ORDINALITY AS each(point, place)"
    for name, query in (
        ("campaign_state", _CAMPAIGN_STATE),
        ("result", _RESULT),
        ("cell_median", _CELL_MEDIAN),
        ("failed_run", _FAILED_RUN),
        ("over_time", _OVER_TIME.format(second=second, point=point, points=points)),
        ("crash_verdict", _CRASH_VERDICT),
    ):
        op.execute(f"CREATE VIEW {name} AS {query}")
