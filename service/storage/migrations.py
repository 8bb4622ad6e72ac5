"""Migrations: each brings a database from one version of the tables to the next.

New tables need nothing: they are created where missing. Tables and columns are named here as that version had them, not
as this one's schema has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import JSON, Connection, column, inspect, select, table, text, update


def _keep_peaks(connection: Connection) -> None:
    """Measured horizons get the step at which q0 is highest, where the job that measured it still has the curve."""
    if not inspect(connection).has_table("measured_horizons"):
        return
    connection.execute(text("ALTER TABLE measured_horizons ADD COLUMN peak INTEGER"))
    horizons = table("measured_horizons", *map(column, ("id", "job_id", "peak")))
    jobs = table("committor_jobs", column("id"), column("result", JSON(none_as_null=True)))
    measured = select(horizons.c.id, jobs.c.result).join_from(horizons, jobs, horizons.c.job_id == jobs.c.id)
    for horizon, result in connection.execute(measured).all():
        if result is not None:
            connection.execute(update(horizons).where(horizons.c.id == horizon).values(peak=_peak(result)))


def _peak(result: dict[str, Any]) -> int:
    best = max(result["points"], key=lambda point: (point["q0"]["estimate"], point["step"]))
    return int(best["step"])


MIGRATIONS: Final[Mapping[int, Callable[[Connection], None]]] = {2: _keep_peaks}
"""By the version that is reached."""
