"""Lists the packages, because pyproject.toml cannot combine packages that are found with packages that are moved.

The folder `launch/` is installed as `t2t_keras.launch`: `python -m launch.train` in the repository is
`python -m t2t_keras.launch.train` after installation.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["t2t_keras", "t2t_keras.*"]), "t2t_keras.launch", "t2t_keras.launch.flag_groups"],
    package_dir={"t2t_keras.launch": "launch"},
)
