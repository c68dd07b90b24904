"""A kernel's program is read from the disk, or made again where the record is of no use."""

import json

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config
from tinytensor.program_cache import make_program
from tinytensor.runtime.cache import open_cache
from tinytensor.target import CPU_AVX512, SM90A


@pytest.fixture
def kernel(tmp_path):
    with config(cache_dir=str(tmp_path)):
        yield kernels_of(Tensor([1.0, 2.0]) + 1)[0]


def rewrite_record(directory, change):
    (file,) = directory.glob("*.txt")
    store = open_cache()
    store.put(file.name, change(store.get(file.name)))


def test_a_second_process_would_not_lower_again(kernel):
    first = make_program(kernel, CPU_AVX512, is_shown=False)
    second = make_program(kernel, CPU_AVX512, is_shown=False)

    assert first.lowered is not None
    assert second.lowered is None
    assert first.program == second.program


def with_other_fields(record):
    return json.dumps({**json.loads(record), "unroll": 4}).encode()


def without_a_field(record):
    fields = json.loads(record)
    del fields["libraries"]
    return json.dumps(fields).encode()


UNUSABLE = {
    "cut short": lambda record: record[: len(record) // 2],
    "no text": lambda record: b"\xff\xfe",
    "no record": lambda record: b"[1, 2]",
    "a field too many": with_other_fields,
    "a field missing": without_a_field,
}


@pytest.mark.parametrize("change", UNUSABLE.values(), ids=UNUSABLE)
def test_a_record_that_is_no_program_is_made_again(change, kernel, tmp_path):
    first = make_program(kernel, CPU_AVX512, is_shown=False)
    rewrite_record(tmp_path, change)

    again = make_program(kernel, CPU_AVX512, is_shown=False)
    after = make_program(kernel, CPU_AVX512, is_shown=False)

    assert again.lowered is not None
    assert again.program == after.program == first.program
    assert after.lowered is None


def test_a_program_of_gpu_launches_comes_back_from_the_disk(kernel):
    first = make_program(kernel, SM90A, is_shown=False)
    second = make_program(kernel, SM90A, is_shown=False)

    assert second.lowered is None
    assert second.program == first.program
    assert hash(second.program) == hash(first.program)


def test_tensor_maps_come_back_from_the_disk(kernel):
    x, y = [Tensor(np.ones((64, 64), np.float16)) for _ in range(2)]
    product = kernels_of(x @ y)[-1]

    first = make_program(product, SM90A, is_shown=False)
    second = make_program(product, SM90A, is_shown=False)

    assert len(first.program.launches[0].tensor_maps) > 1
    assert second.lowered is None
    assert second.program == first.program
