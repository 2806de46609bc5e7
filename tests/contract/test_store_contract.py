"""Every store keeps the same promises. Where one does not, two writers both believe that they committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake.storage import LocalStore, MemoryStore, ObjectStore, Store
from bucketlake.testing.store_contract import SharedStoreContract, StoreContract
from servers.s3 import S3Server


class TestLocalStore(SharedStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "table")


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


@pytest.mark.s3
class TestObjectStoreOnS3(SharedStoreContract):
    foreign_files = ".sgwtmp."  # the server keeps objects in a folder, and in it what it is about to rename

    @pytest.fixture
    def store(self, s3_server: S3Server, tmp_path: Path) -> Store:
        return ObjectStore(f"s3://{s3_server.bucket}/{tmp_path.name}", s3_server.options)
