"""The disk cache: one checked file per key, for binaries and for text records."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import stat
import sys
import time
from contextlib import suppress

from tinytensor.config import config
from tinytensor.lazy import lazy_import
from tinytensor.records import dataclass
from tinytensor.runtime.lock import ForkSafeLock

MAGIC = b"tinyt-01"
LENGTH_BYTES = 8
TRAILER_BYTES = len(MAGIC) + LENGTH_BYTES + hashlib.sha256().digest_size

OWN_FILE = r"\.?[0-9a-f]{64}\."

TOUCH_SECONDS = 3600  # how stale a file's time of last use may be
TRIM_EVERY = 256  # writes between two looks at the directory's size
TRIM_TO = 0.8  # of the limit, so that the next writes do not trim again
ABANDONED_SECONDS = 3600  # after which a half-written file has no writer any more


def open_cache() -> DiskCache:
    """Give the cache in the directory that the settings name."""
    directory = config.cache_dir or _default_directory()
    return _open_directory(os.path.abspath(directory), config.cache_bytes)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the cache that was found whole."""

    path: str
    payload: bytes


class DiskCache:
    """Files by name, each written whole or not at all, and checked when read.

    A name is a key of 64 hexadecimal digits and a suffix, so that no other file is ever removed.
    A file is its payload followed by a trailer: magic, length, and the SHA-256 of name and payload.
    A loader of shared objects ignores what follows the sections, so a checked file can be loaded
    from where it is. A directory that cannot be trusted or written is never an error: this process
    then uses a private temporary one, and says so in one line.
    """

    def __init__(self, directory: str, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.directories = [directory]
        self._is_private = False
        self._writes = 0
        self._lock = ForkSafeLock()
        reason = _why_untrusted(directory)
        if reason:
            self.directories.clear()
            self._use_private(directory, reason)

    def find(self, name: str) -> str | None:
        """Return the path of a file whose payload is whole; None if there is none."""
        entry = self._find_whole(name)
        return None if entry is None else entry.path

    def get(self, name: str) -> bytes | None:
        """Return a file's payload; None if there is none, or if it is broken."""
        entry = self._find_whole(name)
        return None if entry is None else entry.payload

    def put(self, name: str, payload: bytes) -> str:
        """Write a file and return its path; what was there under the name is replaced whole."""
        content = payload + _make_trailer(name, payload)
        with self._lock:
            directory = self.directories[-1]
            try:
                path = _write_whole(directory, name, content)
            except OSError as error:
                if self._is_private:
                    raise
                self._use_private(directory, error.strerror or str(error))
                path = _write_whole(self.directories[-1], name, content)
            if self._writes % TRIM_EVERY == 0:
                trim(directory, self.limit_bytes)
            self._writes += 1
            return path

    def get_text(self, key: str) -> str | None:
        """Return a text record; None if there is none, or if it is broken."""
        payload = self.get(f"{key}.txt")
        try:
            return None if payload is None else payload.decode()
        except UnicodeDecodeError:
            return None

    def put_text(self, key: str, text: str) -> None:
        """Write a text record, if there is room anywhere."""
        self.keep(f"{key}.txt", text.encode())

    def keep(self, name: str, payload: bytes) -> None:
        """Write a file that this process can do without, if there is room anywhere."""
        with suppress(OSError):
            self.put(name, payload)

    def _find_whole(self, name: str) -> Entry | None:
        for directory in self.directories:
            path = os.path.join(directory, name)
            payload = _read_payload(path, name)
            if payload is not None:
                return Entry(path, payload)
        return None

    def _use_private(self, directory: str, reason: str) -> None:
        sentence = f"tinytensor: the cache {directory} cannot be used: {reason}"
        print(f"{sentence}; what is compiled now lasts for this process.", file=sys.stderr)
        self.directories.append(_private_directory())
        self._is_private = True


def trim(directory: str, limit_bytes: int) -> None:
    """Remove the least recently used files until the rest takes at most 80 % of the limit.

    Does nothing below the limit, but for files whose writer must have died.
    """
    now = time.time()
    files: list[tuple[float, int, str]] = []
    for entry in _list_own_files(directory):
        status = _status(entry.path)
        if status is None:
            continue
        if entry.name.startswith(".") and now - status.st_mtime > ABANDONED_SECONDS:
            _remove(entry.path)
        else:
            files.append((status.st_mtime, status.st_size, entry.path))
    total_bytes = sum(size_bytes for _, size_bytes, _ in files)
    if total_bytes <= limit_bytes:
        return
    for _, size_bytes, path in sorted(files):
        _remove(path)
        total_bytes -= size_bytes
        if total_bytes <= TRIM_TO * limit_bytes:
            return


def _default_directory() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "tinytensor")


@functools.cache
def _open_directory(directory: str, limit_bytes: int) -> DiskCache:
    return DiskCache(directory, limit_bytes)


def _why_untrusted(directory: str) -> str:
    """Make the directory if it is missing; say why its files must not be loaded, or nothing."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.stat(directory)
    except OSError as error:
        return error.strerror or str(error)
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


@functools.cache
def _private_directory() -> str:
    """Make this process's own directory, which the process removes when it ends."""
    directory: str = lazy_import("tempfile", None, "cache").mkdtemp(prefix="tinytensor-")
    atexit.register(_remove_directory, directory, os.getpid())
    return directory


def _remove_directory(directory: str, owner_process: int) -> None:
    if os.getpid() == owner_process:  # a forked child inherits the exit hook, not the directory
        lazy_import("shutil", None, "cache").rmtree(directory, ignore_errors=True)


def _forget_in_child() -> None:
    # The parent may remove its private directory at any time: a child must make its own.
    _open_directory.cache_clear()
    _private_directory.cache_clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _make_trailer(name: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(name.encode() + payload).digest()
    return MAGIC + len(payload).to_bytes(LENGTH_BYTES, "little") + digest


def _read_payload(path: str, name: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            content = file.read()
            last_use = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    if time.time() - last_use > TOUCH_SECONDS:
        with suppress(OSError):  # a read-only directory may still be read
            os.utime(path)
    payload = content[:-TRAILER_BYTES]
    return payload if content[-TRAILER_BYTES:] == _make_trailer(name, payload) else None


def _write_whole(directory: str, name: str, content: bytes) -> str:
    path = os.path.join(directory, name)
    unfinished = os.path.join(directory, f".{name}.{os.urandom(8).hex()}")
    try:
        with open(unfinished, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    except BaseException:
        _remove(unfinished)
        raise
    return path


def _list_own_files(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if re.match(OWN_FILE, entry.name)]
    except OSError:
        return []


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # another process removed it
        return None


def _remove(path: str) -> None:
    with suppress(OSError):  # another process removed it, or the directory is read-only
        os.remove(path)
