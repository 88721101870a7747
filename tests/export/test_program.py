"""Status and messages of launch.export, for runs and for exports."""

import pytest

from tests import programs

pytestmark = pytest.mark.integration


def test_the_program_exports(program_results, version):
    status, output, error = program_results["average"]
    assert (status, error) == (0, "")
    assert [path.name for path in version.parent.iterdir()] == ["1"]
    assert "weights of step_00000001, step_00000002: " in output
    assert "beam 3, length penalty 0.6" in output
    assert f"{version}: " in output


@pytest.mark.parametrize(
    "case, message",
    [
        ("too_many", "--average_last=3: {}/run/checkpoints has only 2 checkpoints"),
        ("both", "give either --checkpoint or --average_last, not both"),
        ("no_checkpoint", "no checkpoint '77' in {}/run/checkpoints; steps there: 1, 2; names there: none"),
        ("ensemble", "--ensemble: an ensemble cannot be exported; average checkpoints of one run instead"),
        ("engine", "--engine=ctranslate2: an export searches with TensorFlow; omit the flag"),
        ("no_run", "--model_dir={}/nothing: no such folder"),
        ("beam", "decode.beam_size=1000 is more than the vocabulary's 350 entries"),
        ("average_of_export", "--average_last: {}/saved_models/tiny is an exported model, which has no checkpoints"),
        ("checkpoint_of_export", "{}/saved_models/tiny is an exported model: it has no checkpoint '1' to choose"),
    ],
)
def test_errors_are_one_line(folder, program_results, case, message):
    programs.assert_error(program_results[case], beginning=message.format(folder))
