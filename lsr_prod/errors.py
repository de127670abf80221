"""Every error that lsr_prod raises on purpose.

::

    LsrError
    ├── ConfigError              a setting is unknown, missing, impossible or points nowhere     (exit code 2)
    ├── MissingExtraError        an optional part of the wheel is not installed                  (exit code 2)
    ├── StorageError             a disk or an object store fails; also an OSError
    ├── SourceError              a corpus, query set or judgement file cannot be read at all
    ├── QuarantineOverflowError  more bad rows than `encode.max_bad_fraction` allows
    ├── ArtifactError            an artefact on disk is not what its manifest says
    │   ├── DigestMismatchError  bytes differ from the recorded sha256
    │   ├── FormatVersionError   written by a format this release does not read
    │   └── LineageError         two artefacts that do not belong together (bundle and table, query and index)
    ├── CommitError              the exactly-once protocol refuses to commit
    │   ├── FencedError          a newer attempt of the same plan holds the epoch
    │   ├── IncompleteWaveError  rows_in != rows_out + quarantined
    │   ├── StaleWaveError       a part that the wave replaces was replaced by another commit
    │   └── TableConflictError   another commit came first; load the table and decide again
    ├── EncoderError             the model fails in a process of its own
    │   ├── EncoderRaisedError   it raised on some text
    │   ├── EncoderCrashedError  its process ended
    │   ├── EncoderTimeoutError  it did not answer in time
    │   ├── EncoderLostError     encoder actors, or their machines, died again and again; ends the job
    │   └── EncoderBrokenError   it fails whatever it is given; ends the job
    ├── TrainingError            a training cannot go on
    │   ├── TrainingCollapsedError  vectors became empty or full, or the loss is no number
    │   └── WorkersLostError     training processes died more often than `train.max_failures`
    ├── ParityError              the exported graph ranks differently from the torch model
    ├── PublicationError         nothing is published, or the gates refused a version
    │   └── StaleParentError     another publication came first; derive the version again from the new head
    └── QueryError               a query outside the documented range; also a ValueError
"""

__all__ = [
    "ArtifactError",
    "CommitError",
    "ConfigError",
    "DigestMismatchError",
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
    "SourceError",
    "StaleParentError",
    "StaleWaveError",
    "StorageError",
    "TableConflictError",
    "TrainingCollapsedError",
    "TrainingError",
    "WorkersLostError",
]


class LsrError(Exception):
    """Base of every deliberate error; its text is one sentence a user can act on."""


class ConfigError(LsrError):
    """A setting is wrong.

    Args:
        field: dotted path of the field, for example ``encode.batch_tokens``.
        problem: what is wrong with the value.
        remedy: what would be right.
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{field}: {problem}; {remedy}")


class MissingExtraError(LsrError):
    """An optional dependency is absent.

    Args:
        module: the module that could not be imported.
        extra: the extra of this wheel that brings it.
    """

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed; install it with: pip install 'lsr_prod[{extra}]'")


class StorageError(LsrError, OSError):
    """A disk or an object store fails; what was committed before stands."""


class SourceError(LsrError):
    """A file of the corpus, the queries or the judgements cannot be read at all."""


class QuarantineOverflowError(LsrError):
    """The share of bad rows passed ``encode.max_bad_fraction``."""


class ArtifactError(LsrError):
    """An artefact is missing a part or contradicts its manifest."""


class DigestMismatchError(ArtifactError):
    """The bytes of a file differ from the sha256 recorded for it."""


class FormatVersionError(ArtifactError):
    """The artefact was written in a format that this release does not read."""


class LineageError(ArtifactError):
    """Two artefacts do not belong together."""


class CommitError(LsrError):
    """The exactly-once protocol refuses a commit."""


class FencedError(CommitError):
    """A newer attempt of the same plan has taken over; this one must stop without committing."""


class IncompleteWaveError(CommitError):
    """A wave's rows do not add up: rows_in != rows_out + quarantined."""


class StaleWaveError(CommitError):
    """A part that the wave replaces is no longer in the table; the wave has to be encoded again."""


class TableConflictError(CommitError):
    """Another commit came first; load the table and decide again."""


class EncoderError(LsrError):
    """The model fails in a process of its own; only ``EncoderBrokenError`` and ``EncoderLostError`` end the job."""


class EncoderRaisedError(EncoderError):
    """The model raised; the text is that error's."""


class EncoderCrashedError(EncoderError):
    """The model's process ended; the text names the signal or the exit code."""


class EncoderTimeoutError(EncoderError):
    """The model did not answer in time and its process was ended."""


class EncoderLostError(EncoderError):
    """Encoder actors, or the machines that they ran on, died again and again."""


class EncoderBrokenError(EncoderError):
    """The model does not open, or ends its process on every document."""


class TrainingError(LsrError):
    """A training cannot go on; its checkpoints stand."""


class TrainingCollapsedError(TrainingError):
    """Vectors became empty or full, or the loss is no number; going on would only cost."""


class WorkersLostError(TrainingError):
    """Training processes, or their machines, died more often than the settings allow."""


class ParityError(LsrError):
    """The exported graph does not rank as the torch model does."""


class PublicationError(LsrError):
    """Nothing is published, or a gate refused the version."""


class StaleParentError(PublicationError):
    """Another publication came first; derive the version again from the one that is current now."""


class QueryError(LsrError, ValueError):
    """A query is outside the documented range."""
