"""Everything this library raises on purpose.

    BucketlakeError
      ConfigError            the caller can fix it by changing a path, an option or a value
        NotATableError         nothing at this path says it is a Hudi table
        FilterError            a filter or key does not fit the table's columns
      CorruptTableError      the bytes on disk break the format; `path` names the file
        UnsafePathError        a path leads out of the table
      UnsupportedError       a valid table that uses a feature we do not have

Catch the three middle names; the leaves exist so that a test can be exact.
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


class CorruptTableError(BucketlakeError):
    """The bytes on disk break the format."""

    def __init__(self, *, path: str, found: str, expected: str, remedy: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        super().__init__(f"{path}: found {found}, expected {expected}. {remedy}")


class UnsafePathError(CorruptTableError):
    """A path leads out of the table."""


class UnsupportedError(BucketlakeError):
    """A valid table that uses a feature we do not have."""

    def __init__(self, *, subject: str, found: str, supported: str, remedy: str) -> None:
        self.subject = subject
        self.found = found
        super().__init__(f"{subject} is {found}, and bucketlake supports {supported}. {remedy}")
