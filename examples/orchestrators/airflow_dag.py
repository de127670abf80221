"""A DAG of Airflow 3.2 or later that runs the night at 01:00 UTC; put it and ``night.py`` into the folder of DAGs."""

import datetime as dt
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException
from night import WrongSettingError, run_night


@dag(schedule="0 1 * * *", start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), catchup=False, max_active_runs=1)
def search_night() -> None:
    """Update and publish the index."""

    @task(retries=2, retry_delay=dt.timedelta(minutes=10))
    def reindex(config: str) -> dict[str, Any]:
        try:
            return run_night(config)
        except WrongSettingError as error:
            raise AirflowFailException(str(error)) from error  # no further attempt

    reindex("/srv/search/deployment.yaml")


search_night()
