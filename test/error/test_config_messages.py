import pytest

from tinytensor.config import Config


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {"TT_FUSE": "most"},
            "TT_FUSE: not an allowed value: 'most'; must be an integer from 0 to 3.",
        ),
        ({"DEBUG": "7"}, "DEBUG: not an allowed value: 7; must be an integer from 0 to 6."),
        ({"TT_STRESS": "2"}, "TT_STRESS: not an allowed value: 2; must be an integer from 0 to 1."),
        (
            {"TT_CACHE_BYTES": "-1"},
            "TT_CACHE_BYTES: not an allowed value: -1; must be an integer of at least 0.",
        ),
        (
            {"TT_FP32_MATMUL": "bf16"},
            "TT_FP32_MATMUL: not an allowed value: 'bf16'; must be one of exact, 3xtf32, tf32.",
        ),
    ],
)
def test_a_bad_variable_names_itself_and_what_is_allowed(environment, sentence):
    with pytest.raises(ValueError) as caught:
        Config(environment)

    assert str(caught.value) == sentence


def test_a_value_of_the_wrong_type_is_refused():
    with pytest.raises(ValueError) as caught:
        Config({}).device = 3

    assert str(caught.value) == "TT_DEVICE: not an allowed value: 3; must be a string."


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(TypeError) as caught, Config({})(fuze=1):
        pass

    assert str(caught.value) == (
        "config: no such setting: fuze; must be one of "
        "debug, fuse, verify, stress, fp32_matmul, tune, device, cache_dir, cache_bytes."
    )
