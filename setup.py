"""What is installed: the package, the programs of `launch/` as `t2t_keras.launch`, and their commands."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.findall(r'^__version__ = "(.+)"$', (HERE / "t2t_keras/__init__.py").read_text(), re.MULTILINE)[0]

COMMANDS = {
    "t2t-prepare": "prepare_data",
    "t2t-train": "train",
    "t2t-evaluate": "evaluate",
    "t2t-translate": "translate",
    "t2t-score": "score",
    "t2t-attention": "attention",
    "t2t-average": "average_checkpoints",
    "t2t-export": "export",
    "t2t-convert": "convert",
    "t2t-serve": "serve",
    "t2t-describe": "describe",
    "t2t-study": "study",
    "t2t-draw-trees": "draw_trees",
    "t2t-quickstart": "quickstart",
}

setup(
    name="t2t_keras",
    version=VERSION,
    description='"Attention Is All You Need" as working software: the Transformer on TensorFlow and Keras 3',
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords=["transformer", "attention", "machine translation", "beam search", "tensorflow", "keras"],
    license="Apache-2.0",
    license_files=["LICENSE"],
    # Keras 3.15 asks for 3.11; TensorFlow has no wheels beyond 3.13.
    python_requires=">=3.11,<3.14",
    # In the repository the programs are run as `python -m launch.train`, installed they are `t2t_keras.launch.train`.
    packages=[*find_packages(include=["t2t_keras", "t2t_keras.*"]), "t2t_keras.launch", "t2t_keras.launch.flag_groups"],
    package_dir={"t2t_keras.launch": "launch"},
    package_data={"t2t_keras": ["py.typed", "serving/page/*", "data/sources/*.txt"]},
    install_requires=[
        # Two minor versions of TensorFlow: 2.21 is the newest, and 2.20 the newest that there is for TPUs. The ops of
        # TensorFlow Text are built against one TensorFlow and load in no other, so each of its versions asks for its
        # own minor version of TensorFlow, and a resolver finds the pair. Its 2.21.0 does not load even there.
        "tensorflow>=2.20,<2.22",
        "tensorflow-text>=2.20.1,<2.22,!=2.21.0",
        # One minor version, with either TensorFlow: the training step relies on how this Keras keeps its variables and
        # gives them their names in a checkpoint.
        "keras>=3.15,<3.16",
        "tensorflow-datasets>=4.9.10",
        # TensorFlow Datasets imports it without asking for it.
        "importlib_resources",
        "numpy",
        "sentencepiece>=0.2.1",
        "sacrebleu>=2.4",
        "sacremoses>=0.1",
        "polib>=1.2",
        "absl-py>=2",
        "tqdm>=4.60",
        "matplotlib>=3.7",
        # Writing summaries needs none of it, looking at them does; TensorFlow does not bring it along.
        "tensorboard>=2.20",
        # TensorBoard 2.20, which goes with TensorFlow 2.20, imports pkg_resources, which setuptools 82 has no more.
        "setuptools<82",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22"],
        # Exporting writes TensorFlow Serving's warm-up requests, and launch.serve has its interfaces.
        "serve": ["tensorflow-serving-api>=2.20,<2.22", "starlette>=0.46", "uvicorn>=0.40", "prometheus-client>=0.20"],
        # Scores of summaries and of labels of words.
        "tasks": ["rouge-score>=0.1.2", "seqeval>=1.2"],
        # --engine=ctranslate2.
        "fast": ["ctranslate2>=4.7"],
        # Files of other projects' models, and what runs them.
        "convert": [
            "safetensors>=0.5",
            "pyyaml>=6",
            "tf2onnx>=1.17",
            "onnxruntime>=1.22",
            "ai-edge-litert>=2.1",
            "ctranslate2>=4.7",
            "huggingface_hub>=1",
        ],
        # CTranslate2 rounds to it with torch.
        "bfloat16": ["torch>=2.9"],
        # setuptools for the test that builds a wheel with what is here.
        "dev": [
            "pytest>=8",
            "pytest-xdist>=3.7",
            "hypothesis>=6",
            "ruff>=0.12",
            "mypy>=1.18",
            "httpx>=0.28",
            "selenium>=4.20",
            "pyyaml>=6",
            "safetensors>=0.5",
            "setuptools>=77",
            "packaging>=24",
            "rouge-score>=0.1.2",
            "seqeval>=1.2",
            # Words of Japanese and Korean; their dictionaries take 160 MB.
            "sacrebleu[ja,ko]>=2.4",
        ],
        # What tests leave out where it is missing: the layers on another backend, another Transformer with the same
        # weights, the schemas of Kubernetes, what runs models that were converted, what downloads them. 1 GB. Torch,
        # several GB more, is of bench; tests use it where it is.
        "ci": [
            "jax>=0.7",
            "keras-hub>=0.25",
            "kubernetes-validate>=1.31",
            "tf2onnx>=1.17",
            "onnxruntime>=1.22",
            "ai-edge-litert>=2.1",
            "ctranslate2>=4.7",
            "huggingface_hub>=1",
        ],
        # The peers of benchmarks/train_step.py and decode.py, any of which may be missing, and of text_classifier.py.
        "bench": ["keras-hub>=0.25", "transformers>=5", "torch>=2.9", "ctranslate2>=4.7", "scikit-learn>=1.5"],
    },
    entry_points={"console_scripts": [f"{name} = t2t_keras.launch.{file}:run" for name, file in COMMANDS.items()]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
)
