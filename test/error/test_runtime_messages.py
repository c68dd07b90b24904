"""Claims about the words of the runtime's errors."""

import errno

import pytest
from runtime.c_programs import make_program

from tinytensor.config import config
from tinytensor.errors import CompileError, DeviceError
from tinytensor.ops.program import Program
from tinytensor.runtime import cpu
from tinytensor.runtime.c_compiler import explain_log
from tinytensor.runtime.device import DEVICE_MODULES, Device, DeviceRegistry

SOURCE = "void bad(float *out) {\n  out[0] = missing;\n}\n"
BAD = Program("bad", SOURCE, params=1, workspace_bytes=0)


def test_an_unknown_device():
    with pytest.raises(DeviceError) as caught:
        Device["tpu"]

    assert str(caught.value) == "device: no such device: 'tpu'; must be one of CUDA, CPU, PYTHON."


def test_a_missing_device(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    devices = DeviceRegistry([each for each in DEVICE_MODULES if each.name != "CUDA"])

    with pytest.raises(DeviceError) as caught:
        devices["cpu"]

    assert str(caught.value) == (
        "device: CPU is missing: no C compiler found, looked for CC=no-such-compiler; "
        "usable: PYTHON."
    )


def test_a_missing_compiler_on_an_empty_path(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DeviceError) as caught:
        cpu.open_device()

    assert str(caught.value) == "no C compiler found, looked for cc, gcc, clang"


def test_no_usable_device():
    devices = DeviceRegistry(())

    with pytest.raises(DeviceError) as caught:
        devices.default()

    assert str(caught.value) == "device: none is usable: {}; one must be."


def test_out_of_memory():
    device = cpu.open_device()
    held = device.allocate(1 << 20)

    with pytest.raises(DeviceError) as caught:
        device.allocate(1 << 60)

    assert held.nbytes == 1 << 20
    assert str(caught.value) == (
        "cpu: out of memory: 1152921504606846976 bytes asked for, 1048576 held by live tensors; "
        "the sum must fit the device."
    )


def test_a_copy_of_another_size():
    device = cpu.open_device()

    with pytest.raises(DeviceError) as caught:
        device.copy_in(device.allocate(16), b"123")

    assert str(caught.value) == (
        "cpu: copy sizes differ: the buffer holds 16 bytes, the host memory 3; they must be equal."
    )


def test_a_kernel_that_does_not_compile(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    complaint = "<stdin>:2:12: error: 'missing' undeclared (first use in this function)"
    compiler.write_text(f'#!/bin/sh\necho "{complaint}" >&2\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))

    with pytest.raises(CompileError) as caught:
        cpu.open_device().compile([BAD])

    assert str(caught.value) == (
        f"cpu: kernel 'bad' does not compile: {compiler} complains as below; "
        "the emitted source must be valid.\n"
        "line 2: 'missing' undeclared (first use in this function)\n"
        "     1 | void bad(float *out) {\n"
        ">    2 |   out[0] = missing;\n"
        "     3 | }"
    )


def test_the_systems_compiler_is_understood():
    with pytest.raises(CompileError) as caught:
        cpu.open_device().compile([BAD])

    lines = str(caught.value).splitlines()
    assert lines[1].startswith("line 2: ")
    assert lines[2:] == [
        "     1 | void bad(float *out) {",
        ">    2 |   out[0] = missing;",
        "     3 | }",
    ]


def test_only_the_first_complaints_are_shown():
    log = "\n".join(f"<stdin>:1:{column}: error: wrong {column}" for column in range(1, 6))

    message = explain_log(Program("one", "x", 0, 0), "cc", log)

    assert message == (
        "cpu: kernel 'one' does not compile: cc complains as below; "
        "the emitted source must be valid.\n"
        "line 1: wrong 1\n>    1 | x\nline 1: wrong 2\n>    1 | x\nline 1: wrong 3\n>    1 | x"
    )


def test_a_log_without_lines_is_shown_as_it_is():
    log = "/usr/bin/ld: cannot find -lnothing\ncollect2: error: ld returned 1 exit status\n"

    message = explain_log(BAD, "cc", log)

    assert message == (
        "cpu: kernel 'bad' does not compile: cc complains as below; "
        "the emitted source must be valid.\n"
        "/usr/bin/ld: cannot find -lnothing\n"
        "collect2: error: ld returned 1 exit status"
    )


def test_a_kernel_that_cannot_be_loaded():
    program = make_program("extern void nowhere(void); nowhere();", name="lost")

    with pytest.raises(CompileError) as caught:
        cpu.open_device().compile([program])

    head, _, tail = str(caught.value).partition("undefined symbol: nowhere")
    assert head.startswith("cpu: kernel 'lost' cannot be loaded: ")
    assert tail == (
        "; it must export lost_step and lie where the system lets code be loaded (TT_CACHE_DIR)."
    )


def test_a_kernel_that_no_disk_takes(tmp_path, monkeypatch):
    def refuse(self, name, payload):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tinytensor.runtime.cache.DiskCache.put", refuse)
    with config(cache_dir=str(tmp_path)), pytest.raises(CompileError) as caught:
        Device["CPU"].compile([make_program("", name="unstored")])

    assert str(caught.value) == (
        "cpu: kernel 'unstored' cannot be stored: No space left on device; "
        "TT_CACHE_DIR must name a place with room."
    )
