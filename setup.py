"""The packages, which pyproject.toml cannot name: those that are found, and the programs of `launch/` among them.

In the repository the programs are run as `python -m launch.train`, installed they are `t2t_keras.launch.train`.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["t2t_keras", "t2t_keras.*"]), "t2t_keras.launch", "t2t_keras.launch.flag_groups"],
    package_dir={"t2t_keras.launch": "launch"},
)
