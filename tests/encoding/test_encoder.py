import pickle
from pathlib import Path

import numpy as np

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.passages import document_factory
from lsr_prod.inference import BundleEncoder
from tests.encoding.pinned import pin
from tests.encoding.poison_encoder import FirstTimeEncoder, open_first_time


def test_factory_survives_a_copy_and_opens_the_encoder_with_its_arguments():
    named = EncoderFactory(f"{open_first_time.__module__}:{open_first_time.__name__}", {"memory": "folder/file"})
    factory = pickle.loads(pickle.dumps(named))
    assert factory == named
    assert isinstance(factory.open(), FirstTimeEncoder)


def test_factory_of_a_bundle_survives_a_copy_and_encodes_as_the_bundle(tiny_bundle: Path):
    named = document_factory(pin(tiny_bundle), EncodeSettings(bundle="b", table="t", store_k=8), threads=2)
    factory = pickle.loads(pickle.dumps(named))
    found = factory.open().encode(["a quick fox"])
    expected = BundleEncoder(tiny_bundle).encode(["a quick fox"], kind="document", top_k=8, batch_tokens=512)
    assert np.array_equal(found.terms, expected.terms)
    assert np.array_equal(found.weights, expected.weights)
