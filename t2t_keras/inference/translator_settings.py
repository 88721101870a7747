"""The settings of a translator; imports neither TensorFlow nor Keras."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Union

from t2t_keras.config import DecodeConfig
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.text.terms import Glossary

if TYPE_CHECKING:
    from t2t_keras.search.engines import Engine


@dataclasses.dataclass(frozen=True)
class TranslatorSettings:
    """How a translator translates.

    Attributes:
        decode: the settings of decoding, such as the beam size, penalties, the treatment of case and the protected
            spans; None means those stored with the model, or the defaults.
        excluded: words or phrases that no translation may contain, in addition to those stored with an export; see
            `Request.excluded`.
        glossary: if a source contains one of these terms, its translation is made to contain one of the term's forms,
            as far as the length limit allows; None means no glossary.
        engine: the engine that runs the searches: "tensorflow"; "ctranslate2", which is faster on a CPU (see
            `CTranslate2Engine`); or an engine object.
        compute_type: number format of CTranslate2's matrix products; see `CTranslate2Engine`.
    """

    decode: DecodeConfig | None = None
    excluded: Sequence[str] = ()
    glossary: Glossary | None = None
    engine: Union[EngineName, "Engine"] = "tensorflow"
    compute_type: ComputeType = "float32"

    @classmethod
    def of(cls, settings: Union["TranslatorSettings", DecodeConfig, None]) -> "TranslatorSettings":
        """Returns settings as they are, or the settings of which only `decode` is given."""
        return settings if isinstance(settings, TranslatorSettings) else cls(settings)

    def completed(self, decode: DecodeConfig, excluded: Sequence[str] = ()) -> "TranslatorSettings":
        """Returns the settings with those that are stored with a model.

        Args:
            decode: the stored settings of decoding, which are used if these settings have none.
            excluded: the stored phrases, which are excluded, too.
        """
        phrases = tuple(dict.fromkeys((*excluded, *self.excluded)))
        return dataclasses.replace(self, decode=self.decode or decode, excluded=phrases)
