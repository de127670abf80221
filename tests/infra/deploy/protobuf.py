"""The Job of ``kubectl create job --from=cronjob/NAME``, which kubectl sends as protobuf."""

from collections.abc import Iterator

__all__ = ["job_and_cron_job"]

_MAGIC = b"k8s\x00"


def job_and_cron_job(data: bytes) -> tuple[str, str]:
    """Return the name of the Job, and that of the CronJob that owns it.

    Raises:
        ValueError: it is something else.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("it has no envelope of Kubernetes")
    envelope = dict(_fields(data[len(_MAGIC) :]))  # Unknown: 1 typeMeta, 2 raw
    if dict(_fields(envelope[1])).get(2) != b"Job":
        raise ValueError("it is no Job")
    metadata = dict(_fields(dict(_fields(envelope[2]))[1]))  # ObjectMeta: 1 name, 13 ownerReferences
    owner = dict(_fields(metadata[13]))  # OwnerReference: 1 kind, 3 name
    if owner[1] != b"CronJob":
        raise ValueError("it has no CronJob")
    return metadata[1].decode(), owner[3].decode()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each field of a message; numbers are skipped."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 2:
            size, at = _varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size
        elif key & 7 == 0:
            at = _varint(data, at)[1]
        else:
            raise ValueError(f"wire type {key & 7}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 128:
            return value, at
