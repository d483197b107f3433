"""obstore as the tests of the servers use it: nothing repeated unless asked for, no long waits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import S3Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import S3Config


def obstore_client(
    bucket: str, storage_options: Mapping[str, str], *, retries: int = 0, timeout: float = 20.0
) -> S3Store:
    """Return a store for a bucket of the server that the options lead to."""
    config: S3Config = {
        "endpoint": storage_options["endpoint"],
        "access_key_id": storage_options["access_key_id"],
        "secret_access_key": storage_options["secret_access_key"],
        "region": storage_options["region"],
    }
    return S3Store(
        bucket,
        config=config,
        client_options={"allow_http": True, "timeout": timedelta(seconds=timeout)},
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=20),
            "backoff": {
                "init_backoff": timedelta(milliseconds=5),
                "max_backoff": timedelta(milliseconds=10),
                "base": 2,
            },
        },
    )
