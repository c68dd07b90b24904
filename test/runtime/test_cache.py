"""Claims about the disk cache: whole files or none, a trusted directory or a private one."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
import time

import pytest

from tinytensor.config import config
from tinytensor.runtime.cache import TRAILER_BYTES, DiskCache, _private_directory, open_cache, trim

KEY = hashlib.sha256(b"first").hexdigest()
OTHER_KEY = hashlib.sha256(b"second").hexdigest()
NAME = f"{KEY}.so"
PAYLOAD = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def fresh_private_directory():
    _private_directory.cache_clear()  # one a process, else: each test is like a process


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "cache")


@pytest.fixture
def cache(directory):
    return DiskCache(directory, limit_bytes=1 << 20)


def test_a_payload_comes_back_from_another_process(cache, directory):
    cache.put(NAME, PAYLOAD)

    assert DiskCache(directory, 1 << 20).get(NAME) == PAYLOAD


def test_the_file_begins_with_the_payload(cache, directory):
    path = cache.put(NAME, PAYLOAD)

    assert path == os.path.join(directory, NAME) == cache.find(NAME)
    with open(path, "rb") as file:
        assert file.read(len(PAYLOAD)) == PAYLOAD


def test_an_absent_name_is_not_found(cache):
    assert cache.find(NAME) is None
    assert cache.get(NAME) is None


@pytest.mark.parametrize("text", ["", "one\ntwo\n", "naïve ∑"])
def test_a_text_record_comes_back(cache, text):
    cache.put_text(KEY, text)

    assert cache.get_text(KEY) == text
    assert cache.get_text(OTHER_KEY) is None


def cut_end(content):
    return content[:-1]


def cut_start(content):
    return content[1:]


def cut_half(content):
    return content[: len(content) // 2]


def cut_all(content):
    return b""


def lose_trailer(content):
    return content[:-TRAILER_BYTES]


def flip_payload(content):
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


def flip_trailer(content):
    return content[:-1] + bytes([content[-1] ^ 1])


def append_byte(content):
    return content + b"\0"


DAMAGES = [
    *(cut_end, cut_start, cut_half, cut_all),
    *(lose_trailer, flip_payload, flip_trailer, append_byte),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_absent_until_it_is_written_again(cache, damage):
    path = cache.put(NAME, PAYLOAD)
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(damage(content))

    found = cache.get(NAME)
    cache.put(NAME, PAYLOAD)

    assert found is None
    assert cache.get(NAME) == PAYLOAD


def test_a_file_under_another_name_is_absent(cache):
    path = cache.put(NAME, PAYLOAD)
    os.rename(path, path.replace(KEY, OTHER_KEY))

    assert cache.find(f"{OTHER_KEY}.so") is None


def test_the_directory_is_private_to_the_user(cache, directory):
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700


def test_no_unfinished_file_stays(cache, directory):
    cache.put(NAME, PAYLOAD)

    assert os.listdir(directory) == [NAME]


def assert_private_instead(cache, directory, capsys, reason):
    """Check that a cache works in a directory of its own, and said why in one line."""
    path = cache.put(NAME, PAYLOAD)
    assert os.path.dirname(path) != directory
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert cache.get(NAME) == PAYLOAD
    assert capsys.readouterr().err == (
        f"tinytensor: the cache {directory} cannot be used: {reason}; "
        "what is compiled now lasts for this process.\n"
    )


def test_a_path_that_is_a_file_gives_a_private_directory(directory, capsys):
    with open(directory, "w"):
        pass

    cache = DiskCache(directory, 1 << 20)

    assert_private_instead(cache, directory, capsys, os.strerror(errno.EEXIST))


def test_a_directory_of_another_user_is_not_used(cache, directory, capsys, monkeypatch):
    cache.put(NAME, b"planted")
    owner = os.stat(directory).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    foreign = DiskCache(directory, 1 << 20)

    assert foreign.get(NAME) is None
    assert_private_instead(foreign, directory, capsys, f"it belongs to user {owner}")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_not_used(directory, capsys, mode):
    os.mkdir(directory)
    os.chmod(directory, mode)

    cache = DiskCache(directory, 1 << 20)

    reason = f"others may write to it (mode {mode:o})"
    assert_private_instead(cache, directory, capsys, reason)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_directory_that_cannot_be_written_is_read_only(
    cache, directory, capsys, monkeypatch, code
):
    cache.put_text(OTHER_KEY, "earlier")
    real_replace = os.replace

    def refuse(source, target):
        if target.startswith(directory):
            raise OSError(code, os.strerror(code))
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)

    assert_private_instead(cache, directory, capsys, os.strerror(code))
    assert cache.get_text(OTHER_KEY) == "earlier"
    assert os.listdir(directory) == [f"{OTHER_KEY}.txt"]


def test_a_second_refused_write_says_nothing_more(directory, capsys):
    with open(directory, "w"):
        pass
    cache = DiskCache(directory, 1 << 20)
    capsys.readouterr()

    cache.put_text(KEY, "one")
    cache.put_text(OTHER_KEY, "two")

    assert capsys.readouterr().err == ""


def fill(cache, count, size_bytes):
    """Write files, the first the least recently used, and return their names."""
    names = [f"{hashlib.sha256(bytes([number])).hexdigest()}.so" for number in range(count)]
    now = time.time()
    for age, name in enumerate(reversed(names)):
        path = cache.put(name, bytes(size_bytes - TRAILER_BYTES))
        os.utime(path, (now, now - 60 * age))
    return names


def test_the_least_recently_used_files_go_first(cache, directory):
    names = fill(cache, count=10, size_bytes=1000)

    trim(directory, limit_bytes=5000)

    assert sorted(os.listdir(directory)) == sorted(names[6:])  # 4000 bytes: 80 % of the limit


def test_nothing_goes_below_the_limit(cache, directory):
    names = fill(cache, count=10, size_bytes=1000)

    trim(directory, limit_bytes=10_000)

    assert sorted(os.listdir(directory)) == sorted(names)


def test_files_of_others_stay(cache, directory):
    fill(cache, count=3, size_bytes=1000)
    foreign = os.path.join(directory, "thesis.txt")
    with open(foreign, "w") as file:
        file.write("x" * 5000)
    os.utime(foreign, (0, 0))

    trim(directory, limit_bytes=0)

    assert os.listdir(directory) == ["thesis.txt"]


def test_a_file_whose_writer_died_goes(cache, directory):
    names = fill(cache, count=2, size_bytes=1000)
    abandoned = os.path.join(directory, f".{names[0]}.0123456789abcdef")
    with open(abandoned, "wb"):
        pass
    os.utime(abandoned, (0, 0))

    trim(directory, limit_bytes=10_000)

    assert sorted(os.listdir(directory)) == sorted(names)


def test_the_first_write_of_a_process_trims(cache, directory):
    fill(cache, count=10, size_bytes=1000)

    DiskCache(directory, limit_bytes=2000).put(NAME, b"")

    assert NAME in os.listdir(directory)
    assert len(os.listdir(directory)) <= 2


def test_a_use_is_remembered(cache):
    path = cache.put(NAME, PAYLOAD)
    os.utime(path, (0, 0))

    cache.find(NAME)

    assert time.time() - os.stat(path).st_mtime < 60


def test_the_settings_name_the_directory(directory):
    with config(cache_dir=directory):
        path = open_cache().put(NAME, PAYLOAD)

    assert path == os.path.join(directory, NAME)


def test_the_default_directory_is_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with config(cache_dir=""):
        path = open_cache().put(NAME, PAYLOAD)

    assert path == str(tmp_path / "tinytensor" / NAME)


FORK_SCRIPT = """
import os, sys
from tinytensor.runtime.cache import open_cache
parent = open_cache().put_text("0" * 64, "parent")
mine = open_cache().directories[-1]
child = os.fork()
theirs = open_cache().directories[-1]
if child == 0:
    print(theirs != mine, os.path.exists(mine), open_cache().get_text("0" * 64))
    sys.exit()
os.waitpid(child, 0)
print(os.path.exists(mine), open_cache().get_text("0" * 64))
print(mine)
"""


def test_a_child_leaves_the_private_directory_of_its_parent(tmp_path):
    (tmp_path / "file").touch()
    environment = {**os.environ, "TT_CACHE_DIR": str(tmp_path / "file")}

    done = subprocess.run(
        [sys.executable, "-u", "-c", FORK_SCRIPT], capture_output=True, text=True, env=environment
    )

    child, parent, private = done.stdout.splitlines()
    assert child == "True True None"
    assert parent == "True parent"
    assert not os.path.exists(private)
