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
    """You can fix it: change a path, an option or a value."""


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
    """A row names one partition, and the index of the whole table has its key in another."""


class SchemaError(ConfigError):
    """The rows' columns do not fit the table's."""


class TableExistsError(ConfigError):
    """There is a table already where one should be created."""

    def __init__(self, *, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} is a Hudi table already. Open it with Table.open, or choose another folder; nothing was written."
        )


class LayoutMismatchError(ConfigError):
    """The call names another bucket count, hash field or key encoding than the table has.

    Writing with it would put known keys into new file groups, as duplicates.
    """


class InstantError(ConfigError):
    """An instant does not exist, or must stay as it is. It cannot be rolled back, restored to, or kept."""


class ClockSkewError(ConfigError):
    """The clocks of this machine and of the store are too far apart to tell which writers are alive."""


class CorruptTableError(BucketlakeError):
    """The bytes on disk break the format. `path` names the file."""

    def __init__(self, *, path: str, found: str, expected: str, remedy: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        super().__init__(f"{path}: found {found}, expected {expected}. {remedy}")


class UnsafePathError(CorruptTableError):
    """A path leads out of the table."""


class DamagedFileError(CorruptTableError):
    """A file of a commit is gone, or is not what the commit says it is."""


class UnsupportedError(BucketlakeError):
    """The table is valid, and uses a feature that bucketlake does not have."""

    def __init__(self, *, subject: str, found: str, supported: str, remedy: str) -> None:
        self.subject = subject
        self.found = found
        super().__init__(f"{subject} is {found}, and bucketlake supports {supported}. {remedy}")


class ProofError(BucketlakeError):
    """What was written is not what was given. Nothing of it is visible."""


class SetupError(BucketlakeError):
    """Something that bucketlake needs is missing, such as Java."""


class ConflictError(BucketlakeError):
    """Another writer was in the way. Nothing of this write is visible."""


class ConcurrentWriteError(ConflictError):
    """Another write was already under way when this one began."""


class IndexBeingBuiltError(ConcurrentWriteError):
    """The index that the write needs to look up keys is being built."""


class CommitConflictError(ConflictError):
    """Another write committed first, to the same file groups or keys."""

    is_partial = False
    """Whether only some of this write's file groups are concerned."""


class StreamConflictError(ConflictError):
    """Another query writes the batches of the same stream."""


class ReplayError(ProofError):
    """Spark repeats a committed batch of a stream, with other rows."""


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
