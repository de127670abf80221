"""The S3 endpoint of tests and campaigns: moto on loopback, or the server that ``LSR_TEST_S3_ENDPOINT`` names."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

from lsr_prod.storage import Store

__all__ = ["GIVEN", "create_bucket", "endpoint_options", "local_s3", "s3_endpoint"]

GIVEN = "LSR_TEST_S3_ENDPOINT"
"""Environment variable with the URL of a server; the tests run against its bucket ``lsr`` instead of moto."""

ROOT = Path(__file__).parents[2]


@contextmanager
def local_s3() -> Iterator[dict[str, str]]:
    """Yield the options of an endpoint with the bucket ``lsr``; it is started here unless the environment names one."""
    given = os.environ.get(GIVEN)
    if given is None:
        with s3_endpoint() as options:
            yield options
    else:
        os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
        create_bucket(given, "lsr")
        options = endpoint_options(given)
        if Store("s3://lsr", options).names():
            raise RuntimeError(f"the bucket lsr of {given} is not empty, but the tests need an empty one; empty it")
        yield options


@contextmanager
def s3_endpoint(*arguments: str, buckets: Sequence[str] = ("lsr",)) -> Iterator[dict[str, str]]:
    """Run ``tests.s3_endpoint`` on loopback, and yield the options of its buckets."""
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.s3_endpoint", str(port), *arguments]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(endpoint)
        for bucket in buckets:
            create_bucket(endpoint, bucket)
        yield endpoint_options(endpoint)
    finally:
        server.terminate()
        server.wait(10)


def endpoint_options(endpoint: str) -> dict[str, str]:
    """Return ``storage.options`` of an endpoint without TLS."""
    return {"aws_endpoint": endpoint, "aws_region": "us-east-1", "allow_http": "true"}


def create_bucket(endpoint: str, bucket: str) -> None:
    """Create a bucket, unless it exists."""
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
            raise


def _wait_for(endpoint: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(endpoint, timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(endpoint)
