"""An asset of Dagster with a schedule at 01:00 UTC: ``dagster dev -f dagster_definitions.py``, next to ``night.py``."""

import dagster as dg
from night import WrongSettingError, run_night

CONFIG = "/srv/search/deployment.yaml"


@dg.asset(retry_policy=dg.RetryPolicy(max_retries=2, delay=600))
def search_index() -> dg.MaterializeResult:
    """The published index."""
    try:
        return dg.MaterializeResult(metadata=run_night(CONFIG))
    except WrongSettingError as error:
        raise dg.Failure(str(error), allow_retries=False) from error


night = dg.ScheduleDefinition(name="night", target=[search_index], cron_schedule="0 1 * * *")
definitions = dg.Definitions(assets=[search_index], schedules=[night])
