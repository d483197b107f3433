"""An S3 server as the tests see it, looked into with boto3: a client that Penstock does not use."""

from __future__ import annotations

import uuid
from typing import Any

REGION = "us-east-1"


class S3Server:
    """Where the server is, the keys to it, and a way round Penstock to what it holds."""

    def __init__(self, url: str, access_key_id: str, secret_access_key: str) -> None:
        self.url = url
        self.access_key_id = access_key_id
        self.secret_access_key = secret_access_key
        self.region = REGION
        self.storage_options = {
            "endpoint": url,
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
            "region": REGION,
        }
        self._client = self.client()

    def client(self, url: str | None = None) -> Any:
        """Return a boto3 client of the server, or of a proxy in front of it."""
        # Imported late: every run of pytest loads this module, and few need the half second.
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=url or self.url,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
            config=Config(
                connect_timeout=5,
                read_timeout=30,
                retries={"total_max_attempts": 1},
                proxies={},
                s3={"addressing_style": "path"},
                # The checksums that boto3 adds by itself are unknown to Ceph 16.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def new_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"penstock-{uuid.uuid4().hex[:20]}"
        self._client.create_bucket(Bucket=name)
        return name

    def list_keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys that start with `prefix`, in order."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of an object."""
        content: bytes = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Store an object, or replace it."""
        self._client.put_object(Bucket=bucket, Key=key, Body=content)

    def multipart_uploads(self, bucket: str) -> list[tuple[str, str]]:
        """Return key and upload number of every upload that was begun and not ended."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket)
        return [(entry["Key"], entry["UploadId"]) for p in pages for entry in p.get("Uploads", [])]

    def close(self) -> None:
        """Close the connections to the server."""
        self._client.close()
