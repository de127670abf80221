"""All errors that lsr_prod raises deliberately.

::

    LsrError
    ├── ConfigError              a setting is unknown, missing or invalid, or names nothing that exists (exit code 2)
    ├── MissingExtraError        an optional dependency is not installed (exit code 2)
    ├── StorageError             a disk or an object store fails; also an OSError
    │   └── DiskFullError        a disk has no space or inodes left, or is read-only
    ├── SourceError              a file of a corpus, queries or judgments cannot be read at all
    ├── QuarantineOverflowError  more bad rows than a setting such as `encode.max_bad_fraction` allows
    ├── ArtifactError            an artifact is incomplete or contradicts its manifest
    │   ├── DigestMismatchError  bytes differ from the recorded sha256
    │   ├── FormatVersionError   written in a format that this release does not read
    │   ├── LineageError         two artifacts do not belong together, such as bundle and table
    │   └── SignatureError       a publication is not signed by a trusted key, or its history was changed
    ├── CommitError              the exactly-once protocol refuses a commit
    │   ├── FencedError          a newer attempt of the same plan holds the epoch
    │   ├── IncompleteWaveError  rows_in != rows_out + quarantined
    │   ├── StaleWaveError       a part that the wave replaces was replaced by another commit
    │   └── TableConflictError   another commit came first; load the table and try again
    ├── EncoderError             the model fails in its own process
    │   ├── EncoderRaisedError   it raised an error on some text
    │   ├── EncoderCrashedError  its process ended
    │   ├── EncoderTimeoutError  it exceeded its time limit
    │   ├── EncoderLostError     encoder actors or their machines died repeatedly; ends the job
    │   └── EncoderBrokenError   it fails on every document; ends the job
    ├── TrainingError            a training cannot continue
    │   ├── TrainingCollapsedError  vectors became empty or dense, or the loss is NaN or infinite
    │   └── WorkersLostError     training processes died more often than `train.max_failures`
    ├── WorkerError              a worker process raised an error that is not of lsr_prod, or ended
    ├── ParityError              the exported graph ranks differently from the torch model
    ├── PublicationError         nothing is published, or a gate rejected a version
    │   └── StaleParentError     another publication came first; derive the version again from it
    └── QueryError               a query outside the documented range; also a ValueError
"""

from typing import Self

__all__ = [
    "ArtifactError",
    "CommitError",
    "ConfigError",
    "DigestMismatchError",
    "DiskFullError",
    "EncoderBrokenError",
    "EncoderCrashedError",
    "EncoderError",
    "EncoderLostError",
    "EncoderRaisedError",
    "EncoderTimeoutError",
    "FencedError",
    "FormatVersionError",
    "IncompleteWaveError",
    "LineageError",
    "LsrError",
    "MissingExtraError",
    "ParityError",
    "PublicationError",
    "QuarantineOverflowError",
    "QueryError",
    "SignatureError",
    "SourceError",
    "StaleParentError",
    "StaleWaveError",
    "StorageError",
    "TableConflictError",
    "TrainingCollapsedError",
    "TrainingError",
    "WorkerError",
    "WorkersLostError",
]


class LsrError(Exception):
    """Base of all deliberate errors; the message is one sentence that says what to do."""


class ConfigError(LsrError):
    """A setting is invalid.

    Args:
        field: dotted path of the field, for example ``encode.batch_tokens``.
        problem: what is wrong with the value.
        remedy: what would be right.
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{field}: {problem}; {remedy}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        """Pickle the arguments: workers raise this error, too."""
        return type(self), (self.field, self.problem, self.remedy)


class MissingExtraError(LsrError):
    """An optional dependency is absent."""

    def __init__(self, module: str, extra: str) -> None:
        self.module, self.extra = module, extra
        super().__init__(f"{module} is not installed; install it with: pip install 'lsr_prod[{extra}]'")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Pickle the arguments: workers raise this error, too."""
        return type(self), (self.module, self.extra)


class StorageError(LsrError, OSError):
    """A disk or an object store fails; earlier commits are not affected."""


class DiskFullError(StorageError):
    """A disk has no space or inodes left, or is read-only; the same command completes when there is room."""


class SourceError(LsrError):
    """A file of the corpus, the queries or the judgments cannot be read at all."""


class QuarantineOverflowError(LsrError):
    """The share of bad rows exceeds a limit such as ``encode.max_bad_fraction``."""


class ArtifactError(LsrError):
    """An artifact is incomplete or contradicts its manifest."""


class DigestMismatchError(ArtifactError):
    """The bytes of a file differ from its recorded sha256."""


class FormatVersionError(ArtifactError):
    """An artifact has a format that this release does not read."""


class LineageError(ArtifactError):
    """Two artifacts do not belong together."""


class SignatureError(ArtifactError):
    """A publication is not signed by a trusted key, or its history was changed."""


class CommitError(LsrError):
    """The exactly-once protocol refuses a commit."""


class FencedError(CommitError):
    """A newer attempt of the same plan has started; this one must stop without a commit."""


class IncompleteWaveError(CommitError):
    """The rows of a wave do not add up: rows_in != rows_out + quarantined."""


class StaleWaveError(CommitError):
    """A part that the wave replaces is no longer in the table; the wave has to be encoded again."""


class TableConflictError(CommitError):
    """Another commit came first; load the table and try again."""


class EncoderError(LsrError):
    """The model fails in its own process; only ``EncoderBrokenError`` and ``EncoderLostError`` end the job."""


class EncoderRaisedError(EncoderError):
    """The model raised an error; the message is that of the error."""


class EncoderCrashedError(EncoderError):
    """The process of the model ended; the message names the signal or the exit code."""


class EncoderTimeoutError(EncoderError):
    """The model exceeded its time limit and its process was killed."""


class EncoderLostError(EncoderError):
    """Encoder actors, or the machines on which they ran, died repeatedly."""


class EncoderBrokenError(EncoderError):
    """The model cannot be opened, or its process ends on every document."""


class TrainingError(LsrError):
    """A training cannot continue; its checkpoints are kept."""


class TrainingCollapsedError(TrainingError):
    """Vectors became empty or dense, the loss is NaN or infinite, or no learning rate lowers it."""


class WorkersLostError(TrainingError):
    """Training processes, or their machines, died more often than the settings allow."""


class WorkerError(LsrError):
    """A worker process raised an error that is not of lsr_prod, or ended; the message names task, node and cause."""


class ParityError(LsrError):
    """The exported graph ranks differently from the torch model."""


class PublicationError(LsrError):
    """Nothing is published, or a gate rejected the version."""


class StaleParentError(PublicationError):
    """Another publication came first; derive the version again from it."""


class QueryError(LsrError, ValueError):
    """A query is outside the documented range."""
