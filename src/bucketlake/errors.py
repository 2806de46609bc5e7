"""Everything this library raises on purpose.

    BucketlakeError
      ConfigError            the caller can fix it by changing a path, an option or a value
        NotATableError         nothing at this path says it is a Hudi table
        FilterError            a filter or key does not fit the table's columns
        SchemaError            the rows' columns do not fit the table's
        TableExistsError       a table is to be created where one is
        LayoutMismatchError    another bucket count, hash field or key encoding than the table's
        InstantError           an instant that is not there, or must stay as it is
        ClockSkewError         this machine's clock is not the store's
        KeyElsewhereError      a key comes to one partition, and an index has it in another
      CorruptTableError      the bytes on disk break the format; `path` names the file
        UnsafePathError        a path leads out of the table
        DamagedFileError       a file that a commit tells of is gone, or is not what the commit tells
      UnsupportedError       a valid table that uses a feature we do not have
      ProofError             what was written is not what was given; nothing of it is visible
      SetupError             what bucketlake runs on is not there, such as Java
      ConflictError          another writer was in the way; nothing of ours is visible
        ConcurrentWriteError   found when a write begins: another one is under way
          IndexBeingBuiltError   or the index that it would look keys up in is being built
        CommitConflictError    found when it commits: another one was faster
        StreamConflictError    another query writes the batches of the same stream
      ReplayError            a batch that was committed comes again with other rows

Catch the middle names; the leaves exist so that a test can be exact.
A message says what was found, what was expected, and what to do next.
"""


class BucketlakeError(Exception):
    """The base of every error this library raises on purpose."""


class ConfigError(BucketlakeError):
    """The caller can fix it by changing a path, an option or a value."""


class NotATableError(ConfigError):
    """Nothing at this path says it is a Hudi table."""

    def __init__(self, *, path: str, found: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} is not a Hudi table: {found}. "
            f"A table has the file .hoodie/hoodie.properties; give the folder that contains .hoodie."
        )


class FilterError(ConfigError):
    """A filter or key does not fit the table's columns."""


class KeyElsewhereError(ConfigError):
    """A key comes to one partition, and an index that has every key once has it in another."""


class SchemaError(ConfigError):
    """The rows' columns do not fit the table's."""


class TableExistsError(ConfigError):
    """A table is to be created where one is."""

    def __init__(self, *, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} is a Hudi table already. Open it with Table.open, or choose another folder; nothing was written."
        )


class LayoutMismatchError(ConfigError):
    """Another bucket count, hash field or key encoding than the table's.

    Writing by it would put keys that the table has into new file groups, as duplicates.
    """


class InstantError(ConfigError):
    """An instant that is not there, or must stay as it is: it cannot be rolled back, restored to or protected."""


class ClockSkewError(ConfigError):
    """This machine's clock and the store's are too far apart to tell who is alive."""


class CorruptTableError(BucketlakeError):
    """The bytes on disk break the format."""

    def __init__(self, *, path: str, found: str, expected: str, remedy: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        super().__init__(f"{path}: found {found}, expected {expected}. {remedy}")


class UnsafePathError(CorruptTableError):
    """A path leads out of the table."""


class DamagedFileError(CorruptTableError):
    """A file that a commit tells of is gone, or is not what the commit tells."""


class UnsupportedError(BucketlakeError):
    """A valid table that uses a feature we do not have."""

    def __init__(self, *, subject: str, found: str, supported: str, remedy: str) -> None:
        self.subject = subject
        self.found = found
        super().__init__(f"{subject} is {found}, and bucketlake supports {supported}. {remedy}")


class ProofError(BucketlakeError):
    """What was written is not what was given; nothing of it is visible."""


class SetupError(BucketlakeError):
    """What bucketlake runs on is not there, such as Java."""


class ConflictError(BucketlakeError):
    """Another writer was in the way; nothing of ours is visible."""


class ConcurrentWriteError(ConflictError):
    """Another write is under way, found when ours began."""


class IndexBeingBuiltError(ConcurrentWriteError):
    """The index by which a table finds its keys is delisted, and being built."""


class CommitConflictError(ConflictError):
    """Another write was faster, found when ours was to commit."""

    is_partial = False
    """Whether only some of the file groups that ours wrote are concerned."""


class StreamConflictError(ConflictError):
    """Another query writes the batches of the same stream."""


class ReplayError(ProofError):
    """A batch of a stream that was committed comes again with other rows."""


def shown(value: object) -> str:
    """Show a value, or of a long one its beginning, and its type.

    >>> shown("4"), shown(None)
    ("'4', a str", 'None')
    """
    if value is None:
        return "None"
    shown = repr(value)
    kind = type(value).__name__
    return f"{shown if len(shown) <= 60 else shown[:60] + '…'}, {'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
