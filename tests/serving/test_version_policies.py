"""Version policies and version labels."""

import logging
import shutil

import pytest

from t2t_keras.serving.model_configs import VersionPolicy
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.versions import Versions
from tests.serving.light_versions import FakeModel, open_versions, states, write_version


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "mine"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (VersionPolicy(), {5}),
        (VersionPolicy(max_versions=2), {5, 3}),
        (VersionPolicy(max_versions=9), {5, 3, 1}),
        (VersionPolicy(max_versions=None), {5, 3, 1}),
        (VersionPolicy(max_versions=None, specific=frozenset({1, 3})), {3, 1}),
    ],
)
def test_policies_choose_among_loadable_versions(folder, policy, expected):
    for version in (1, 3, 5):
        write_version(folder, version)
    write_version(folder, 4, "bad")
    versions = open_versions(folder)
    versions.set_policy(policy, {})
    versions.poll()
    assert {version for version, state in states(versions).items() if state == "AVAILABLE"} == expected
    assert versions.served == max(expected)
    for version in expected:
        with versions.lend(version) as model:
            assert model.version == version


def test_missing_versions_of_a_policy(folder, caplog):
    """The served versions stay, and the error of a label tells an unserved version from an unknown label."""
    write_version(folder, 1)
    versions = open_versions(folder)
    versions.set_policy(VersionPolicy(max_versions=None, specific=frozenset({7, 8})), {"next": 7, "now": 1})
    versions.poll()
    versions.poll()
    assert versions.served == 1 and caplog.text.count("no version 7, 8, which the version policy selects") == 1
    with versions.lend("now") as model:
        assert model.version == 1
    for label, code in (("next", Code.NOT_FOUND), ("other", Code.INVALID_ARGUMENT)):
        with pytest.raises(ServingError) as caught, versions.lend(label):
            pass
        assert caught.value.code is code


def test_labels_move_when_the_new_version_is_served(folder):
    """The label keeps its old version while the new one loads, even if the policy no longer includes the old one."""
    write_version(folder, 1)
    seen = []

    def load(path, version):
        seen.append(versions.number("stable"))
        if version == 3:
            raise OSError("away")
        return FakeModel(path, version)

    versions = Versions(folder, "mine", max_retries=0, load=load)
    versions.set_policy(VersionPolicy(max_versions=None, specific=frozenset({1})), {"stable": 1})
    versions.poll()
    for number in (2, 3):
        write_version(folder, number)
        versions.set_policy(VersionPolicy(max_versions=None, specific=frozenset({number})), {"stable": number})
        versions.poll()
    assert seen == [1, 1, 2]
    with versions.lend("stable") as model:
        assert model.version == 2
    versions.set_policy(VersionPolicy(max_versions=None, specific=frozenset({2})), {"other": 2})
    assert versions.number("other") == 2
    with pytest.raises(ServingError, match="Unrecognized servable version label: stable"):
        versions.number("stable")


def test_labels_keep_their_version_if_the_new_one_cannot_be_loaded(folder):
    for number in (3, 4, 5):
        write_version(folder, number, "damaged" if number == 4 else "good")
    versions = Versions(folder, "mine", max_retries=0, load=FakeModel)
    for number in (3, 4):
        expected = VersionPolicy(max_versions=None, specific=frozenset({number, 5}))
        versions.set_policy(expected, {"stable": number, "canary": 5})
        versions.poll()
    for label, number in (("stable", 3), ("canary", 5)):
        with versions.lend(label) as model:
            assert model.version == number
    write_version(folder, 4)
    versions.poll()
    assert versions.number("stable") == 4
    versions.poll()
    assert states(versions)[3] == "END"


def test_replaced_files_of_a_loaded_version_are_ignored_with_a_warning(folder, caplog):
    write_version(folder, 1)
    versions = open_versions(folder)
    shutil.rmtree(folder / "1")
    versions.poll()
    write_version(folder, 2)
    (folder / "2").rename(folder / "1")
    for _ in range(3):
        versions.poll()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in warnings if line.startswith("the files of version 1 of mine have changed")] == warnings[
        -1:
    ]
    assert states(versions) == {1: "AVAILABLE"}
