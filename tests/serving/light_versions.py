"""Versions of a fake model that does not need TensorFlow."""

from t2t_keras.serving.versions import Versions


class FakeModel:
    """A fake model that loads if its directory has a file with the content "good"."""

    def __init__(self, path, version):
        if (path / "model").read_text() != "good":
            raise ValueError("not\n good")
        self.path, self.version, self.mtime = path, version, (path / "model").stat().st_mtime_ns

    @property
    def is_as_loaded(self):
        return (self.path / "model").exists() and (self.path / "model").stat().st_mtime_ns == self.mtime


def write_version(folder, version, content="good"):
    path = folder / str(version)
    path.mkdir(parents=True, exist_ok=True)
    (path / "model").write_text(content)


def states(versions):
    return {status.version: status.state for status in versions.statuses()}


def open_versions(folder, **settings):
    folder.mkdir(exist_ok=True)
    versions = Versions(folder, "mine", load=FakeModel, **settings)
    versions.poll()
    return versions
