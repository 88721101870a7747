"""Which versions are served, and which labels they have."""

import logging
import shutil

import pytest

from t2t_keras.serving.model_configs import VersionPolicy
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.versions import Versions
from tests.serving.light_versions import Light, following, states, write


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "mine"


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (VersionPolicy(), {5}),
        (VersionPolicy(most=2), {5, 3}),
        (VersionPolicy(most=9), {5, 3, 1}),
        (VersionPolicy(most=None), {5, 3, 1}),
        (VersionPolicy(most=None, specific=frozenset({1, 3})), {3, 1}),
    ],
)
def test_a_policy_chooses_among_those_that_can_be_loaded(folder, policy, wanted):
    for version in (1, 3, 5):
        write(folder, version)
    write(folder, 4, "bad")
    versions = following(folder)
    versions.choose(policy, {})
    versions.poll()
    assert {version for version, state in states(versions).items() if state == "AVAILABLE"} == wanted
    assert versions.served == max(wanted)
    for version in wanted:
        with versions.lend(version) as model:
            assert model.version == version


def test_versions_that_a_policy_asks_for_in_vain(folder, caplog):
    """What is served goes on, and a label of a version that is not served is told from an unknown one."""
    write(folder, 1)
    versions = following(folder)
    versions.choose(VersionPolicy(most=None, specific=frozenset({7, 8})), {"next": 7, "now": 1})
    versions.poll()
    versions.poll()
    assert versions.served == 1 and caplog.text.count("no version 7, 8, which the version policy selects") == 1
    with versions.lend("now") as model:
        assert model.version == 1
    for label, code in (("next", Code.NOT_FOUND), ("other", Code.INVALID_ARGUMENT)):
        with pytest.raises(ServingError) as caught, versions.lend(label):
            pass
        assert caught.value.code is code


def test_a_label_stands_for_its_version_until_its_new_one_is_served(folder):
    """However long that takes to load, and whether or not the old one stays."""
    write(folder, 1)
    seen = []

    def load(path, version):
        seen.append(versions.number("stable"))
        if version == 3:
            raise OSError("away")
        return Light(path, version)

    versions = Versions(folder, "mine", max_retries=0, load=load)
    versions.choose(VersionPolicy(most=None, specific=frozenset({1})), {"stable": 1})
    versions.poll()
    for number in (2, 3):
        write(folder, number)
        versions.choose(VersionPolicy(most=None, specific=frozenset({number})), {"stable": number})
        versions.poll()
    assert seen == [1, 1, 2]
    with versions.lend("stable") as model:
        assert model.version == 2
    versions.choose(VersionPolicy(most=None, specific=frozenset({2})), {"other": 2})
    assert versions.number("other") == 2
    with pytest.raises(ServingError, match="Unrecognized servable version label: stable"):
        versions.number("stable")


def test_a_label_keeps_its_version_though_another_one_is_served(folder):
    for number in (3, 4, 5):
        write(folder, number, "damaged" if number == 4 else "good")
    versions = Versions(folder, "mine", max_retries=0, load=Light)
    for number in (3, 4):
        wanted = VersionPolicy(most=None, specific=frozenset({number, 5}))
        versions.choose(wanted, {"stable": number, "canary": 5})
        versions.poll()
    for label, number in (("stable", 3), ("canary", 5)):
        with versions.lend(label) as model:
            assert model.version == number
    write(folder, 4)
    versions.poll()
    assert versions.number("stable") == 4
    versions.poll()
    assert states(versions)[3] == "END"


def test_files_that_are_replaced_under_a_number_are_said_to_be_ignored(folder, caplog):
    write(folder, 1)
    versions = following(folder)
    shutil.rmtree(folder / "1")
    versions.poll()
    write(folder, 2)
    (folder / "2").rename(folder / "1")
    for _ in range(3):
        versions.poll()
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in said if line.startswith("the files of version 1 of mine have changed")] == said[-1:]
    assert states(versions) == {1: "AVAILABLE"}
