import subprocess
import sys

import pytest

from extra.settings import settings_table
from tinytensor.config import SETTINGS, Config


def test_an_empty_environment_gives_the_defaults():
    found = vars(Config({}))

    assert found == {
        "debug": 0,
        "fuse": 3,
        "verify": False,
        "stress": False,
        "fp32_matmul": "exact",
        "tune": "stored",
        "device": "",
        "cache_dir": "",
        "cache_bytes": 1_073_741_824,
    }


def test_the_environment_is_read_in_each_setting_s_own_type():
    environment = {"DEBUG": "4", "TT_VERIFY": "1", "TT_DEVICE": "CPU", "TT_CACHE_BYTES": "0"}

    found = Config(environment)

    assert (found.debug, found.device, found.cache_bytes) == (4, "CPU", 0)
    assert found.verify is True


def test_an_empty_variable_counts_as_absent():
    assert Config({"TT_FUSE": ""}).fuse == 3


def test_a_with_block_restores_what_it_changed():
    settings = Config({"DEBUG": "1"})

    with settings(fuse=0, debug=2):
        inside = (settings.fuse, settings.debug)
        with settings(fuse=1):
            inner = (settings.fuse, settings.debug)

    assert (inside, inner, (settings.fuse, settings.debug)) == ((0, 2), (1, 2), (3, 1))


def test_a_with_block_restores_after_an_error():
    settings = Config({})

    with pytest.raises(KeyError), settings(fuse=0):
        raise KeyError

    assert settings.fuse == 3


def test_a_refused_change_leaves_nothing_changed():
    settings = Config({})

    with pytest.raises(ValueError, match="DEBUG"), settings(fuse=0, debug=99):
        pass

    assert (settings.fuse, settings.debug) == (3, 0)


def test_a_change_outside_the_block_of_another_setting_stays():
    settings = Config({})

    with settings(fuse=0):
        settings.debug = 5

    assert (settings.fuse, settings.debug) == (3, 5)


def test_a_true_becomes_a_number_where_a_number_is_held():
    settings = Config({})

    settings.debug = True

    assert type(settings.debug) is int


def test_the_table_has_a_row_for_each_setting():
    rows = settings_table().splitlines()

    assert len(rows) == 2 + len(SETTINGS)
    assert rows[3].startswith("| `TT_FUSE` | `fuse` | 3 | an integer from 0 to 3 | What may share")


def test_a_bad_variable_fails_the_import_with_one_sentence():
    program = "import tinytensor.config"
    found = subprocess.run(
        [sys.executable, "-c", program], env={"TT_FUSE": "9"}, capture_output=True, text=True
    )

    assert found.returncode == 1
    assert found.stderr.endswith(
        "ValueError: TT_FUSE: not an allowed value: 9; must be an integer from 0 to 3.\n"
    )
